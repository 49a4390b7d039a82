#include <algorithm>
#include <map>

#include "motet/bench/attention_bench.h"
#include "motet/bench/shape.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/commands/together.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

const Words<at::ScalarType>& attention_types() {
  static const Words<at::ScalarType> all{{"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}};
  return all;
}

std::vector<Cell> attention_row(const AttentionTimes& t, bool people) {
  const AttentionSize& n = t.what.size;
  std::vector<Cell> row{t.what.mechanism,
                        count(n.B),
                        count(n.T),
                        count(n.H),
                        count(n.D),
                        word_of(attention_types(), t.what.type),
                        t.backward ? "forward+backward" : "forward",
                        t.kernel};
  const Cell none{"-", nullptr};
  const auto add = [&](const std::optional<Time>& time) {
    row.push_back(time ? milliseconds(time->wall) : none);
    if (!people) row.push_back(time ? milliseconds(time->cpu) : none);
  };
  row.push_back(milliseconds(t.ours.wall));
  row.push_back(milliseconds(t.ours.cpu));
  add(t.sdpa);
  add(t.eager);
  row.push_back(ratio(t.ours.wall / t.sdpa.wall));
  row.push_back(t.eager ? ratio(t.ours.wall / t.eager->wall) : none);
  return row;
}

Table attention_table(bool people) {
  const auto right = [](const char* name, const char* unit, const char* key) {
    return Column{name, Align::right, unit, key};
  };
  Table table{.columns = {{"mechanism", Align::left},
                          {"B"},
                          {"T"},
                          {"H"},
                          {"D"},
                          {"dtype", Align::left},
                          {"pass", Align::left},
                          {"kernel", Align::left},
                          right("time", "ms", "wall_ms"),
                          right("CPU", "ms", "cpu_ms")}};
  for (const auto& [name, key] : {std::pair("SDPA", "sdpa"), std::pair("eager", "eager")}) {
    table.columns.push_back(right(name, "ms", text(key, "_wall_ms").c_str()));
    if (!people) table.columns.push_back(right(name, "CPU ms", text(key, "_cpu_ms").c_str()));
  }
  table.columns.push_back(right("time/SDPA", "", "time_over_sdpa"));
  table.columns.push_back(right("time/eager", "", "time_over_eager"));
  if (people)
    table.note =
        "SDPA: PyTorch's causal multi-head attention of equal B, T, H and D. Eager: the same operator in torch "
        "operations of the same dtype, as users\n"
        "write it. CPU: of all threads. Below 1 is faster than the rival. Every operator was first checked against "
        "float64.\n";
  return table;
}

int bench_attention(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  if (asked.goals) return bench_attention_goals(request, asked);
  const int64_t repeats = repeats_of(asked, 5);
  const std::string dtype = asked.dtype.empty() ? "float32" : asked.dtype;
  const std::vector<AttentionCase> cases = attention_cases(asked.shape, value_of(attention_types(), dtype, "--dtype"));
  const bool people = for_people(request);
  const Setup setup{.threads = request_threads(request), .repeats = repeats, .device = parse_device(asked.device)};
  Table table = attention_table(people);
  Progress progress("bench attention", static_cast<int64_t>(cases.size()));
  int64_t done = 0;
  for (const AttentionCase& what : cases) {
    progress.update(done, what.mechanism);
    for (const AttentionTimes& times : measure_attention(what, {.warmups = 2, .repeats = setup.repeats}, setup.device))
      table.rows.push_back(attention_row(times, people));
    progress.update(++done, what.mechanism);
  }
  progress.finish();
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

using Run = int (*)(const nlohmann::json&);

// The benchmark that is asked for, with flags that it has.
Run benchmark(const nlohmann::json& request) {
  static const Words<Run> all{{"attention", bench_attention}, {"memory", bench_memory},
                              {"train", bench_train},         {"checkpoint", bench_checkpoint},
                              {"processes", bench_processes}, {"infer", bench_infer},
                              {"serve", bench_serve}};
  // What is not asked of all of them.
  static const std::map<std::string, std::vector<std::string>> of_some{
      {"goals", {"attention", "train"}},
      {"repeats", {"attention", "train", "checkpoint", "processes", "infer", "serve"}},
      {"python", {"attention", "train", "infer", "serve"}},
      {"dtype", {"attention", "train"}},
      {"mechanisms", {"memory", "train", "infer"}},
      {"rivals", {"train", "infer", "serve"}},
      {"recompute", {"train"}},
      {"model", {"infer", "serve"}},
      {"beside", {"serve"}},
      {"soak", {"serve"}},
      {"turn", {"serve"}},
      {"processes", {"processes"}},
      {"weights", {"infer", "serve"}},
      {"cache_types", {"infer"}}};
  const std::string what = request.value("what", "");
  const Run run = value_of(all, what, "benchmark");
  for (const auto& [field, takers] : of_some) {
    if (!request.contains(field) || std::ranges::find(takers, what) != takers.end()) continue;
    std::string names;
    for (const std::string& name : takers) names += (names.empty() ? "" : name == takers.back() ? " or " : ", ") + name;
    std::string flag = field;
    std::ranges::replace(flag, '_', '-');
    fail_usage("--", flag, " is given for ", what, ", want it for ", names);
  }
  if (what == "attention" && !request.value("goals", false) && request.contains("python"))
    fail_usage("--python: has no meaning for bench attention without --goals");
  for (const char* field : {"dtype", "mechanisms", "rivals", "recompute"})
    if (request.value("goals", false) && request.contains(field))
      fail_usage("--", field, " is given with --goals, which have their own");
  return run;
}

}  // namespace

int run_bench(const nlohmann::json& request) {
  const Place place = request.value("what", "") == "processes" ? this_place() : Place{};
  return read_by_each(place, [&] { return benchmark(request); })(request);
}

}  // namespace motet
