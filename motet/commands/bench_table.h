#pragma once
#include "motet/bench/goals.h"
#include "motet/commands/options.h"
#include "motet/ops/torch.h"
#include "motet/report/table.h"

// What the tables of all benchmarks have in common.
namespace motet {

/// Whether the table is read by people: notes below it instead of columns in each row.
bool for_people(const nlohmann::json& request);

/// What a reader of the numbers has to know: below the table, or columns of each row for programs. `statistic`: what
/// was made of the repeats.
struct Setup {
  int64_t threads, repeats;
  const char* statistic = "Medians";
  at::Device device = at::kCPU;  // that was measured
};
void add_setup(Table&, const Setup&, const nlohmann::json& request);

/// --repeats, or `otherwise`. Throws UsageError below the fewest of which a median says something.
int64_t repeats_of(const BenchRequest&, int64_t fewest, int64_t otherwise = 9);

/// -t, or two where there are as many: more of them meet on a small model's matrices.
int64_t two_threads(const nlohmann::json& request);

Cell milliseconds(double seconds);
Cell ratio(double);
Cell count(int64_t);

/// The goals and what each reaches; 1 when one falls short by more than 5 %, or has a limit and was not measured.
int show_goals(const std::vector<Goal>&, const std::string& note, const Setup&, const nlohmann::json& request);

int bench_attention_goals(const nlohmann::json& request, const BenchRequest&);
int bench_train_goals(const nlohmann::json& request, const BenchRequest&);
int bench_memory(const nlohmann::json& request);
int bench_train(const nlohmann::json& request);
int bench_checkpoint(const nlohmann::json& request);
int bench_processes(const nlohmann::json& request);
int bench_infer(const nlohmann::json& request);
int bench_serve(const nlohmann::json& request);
int bench_soak(const nlohmann::json& request);
int bench_turn(const nlohmann::json& request);

}  // namespace motet
