// `motet bench attention --goals` and `motet bench train --goals`: goals, and what each reaches.
#include "motet/bench/attention_bench.h"
#include "motet/bench/goals.h"
#include "motet/bench/machine.h"
#include "motet/bench/shape.h"
#include "motet/bench/train_goals.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/instructions.h"
#include "motet/core/process.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

const Cell kNothing{"-", nullptr};

Cell limit(const Goal& goal, double value) {
  return value == 0 ? kNothing : Cell{text(goal.at_least ? ">= " : "<= ", fixed(value, 2)), value};
}

Cell reached(const Goal& goal) {
  if (!goal.why_not.empty()) return {"not measured", goal.limit == 0 ? nlohmann::json() : nlohmann::json(false)};
  return {goal.limit == 0 ? "" : goal.reached() ? "reached" : "SHORT", !goal.short_of()};
}

std::vector<Cell> row_of(const Goal& goal) {
  const auto time = [&](double seconds) { return goal.why_not.empty() ? milliseconds(seconds) : kNothing; };
  return {goal.what,
          goal.why_not.empty() ? ratio(goal.measured()) : kNothing,
          limit(goal, goal.limit),
          reached(goal),
          time(goal.of_time.cpu),
          time(goal.over_time.cpu),
          time(goal.of_time.wall),
          time(goal.over_time.wall)};
}

void note_reasons(Table& table, const std::vector<Goal>& goals) {
  for (const Goal& goal : goals)
    if (!goal.why_not.empty()) table.note += text(goal.what, ": not measured: ", goal.why_not, "\n");
}

// What people read in signs and below the table.
void add_columns_for_programs(Table& table, const std::vector<Goal>& goals) {
  table.columns.push_back({"at_least"});
  table.columns.push_back({"not_measured"});
  for (size_t i = 0; i < goals.size(); ++i) {
    const std::string& why = goals[i].why_not;
    table.rows[i].push_back({"", goals[i].at_least});
    table.rows[i].push_back(why.empty() ? kNothing : Cell{why});
  }
}

void add_stretch(Table& table, const std::vector<Goal>& goals) {
  if (std::ranges::none_of(goals, [](const Goal& goal) { return goal.stretch != 0; })) return;
  table.columns.push_back({"stretch"});
  for (size_t i = 0; i < goals.size(); ++i) table.rows[i].push_back(limit(goals[i], goals[i].stretch));
}

std::string of_kind(const std::string& cpu) { return cpu.empty() ? "" : text("Goals of a CPU with ", cpu, ". "); }

}  // namespace

int show_goals(const std::vector<Goal>& goals, const std::string& note, const Setup& setup,
               const nlohmann::json& request) {
  Table table{.columns = {{"goal", Align::left},
                          {"ratio", Align::right, "", "ratio"},
                          {"limit", Align::right, "", "limit"},
                          {"", Align::left, "", "reached"},
                          {"time", Align::right, "ms", "cpu_ms"},
                          {"over", Align::right, "ms", "over_cpu_ms"},
                          {"clock", Align::right, "ms", "wall_ms"},
                          {"over", Align::right, "ms", "over_wall_ms"}}};
  for (const Goal& goal : goals) table.rows.push_back(row_of(goal));
  add_stretch(table, goals);
  if (for_people(request)) {
    table.note = note;
    note_reasons(table, goals);
  } else {
    add_columns_for_programs(table, goals);
  }
  add_setup(table, setup, request);
  print_table(table, request);
  return std::ranges::any_of(goals, &Goal::short_of) ? 1 : 0;
}

int bench_attention_goals(const nlohmann::json& request, const BenchRequest& asked) {
  const OptionTable only_length{attention_shape_options().front()};
  const at::Device device = parse_device(asked.device);
  const nlohmann::json shape = parse_shape(asked.shape, only_length);
  output_format(request);  // refused before anything runs
  nlohmann::json with_threads = request;
  if (device.is_cpu() && !request.contains("threads")) with_threads["threads"] = 1;  // the CPU's are of one thread
  const Setup setup{.threads = request_threads(with_threads), .repeats = repeats_of(asked, 5), .device = device};
  GoalRun run{.python = asked.python, .turns = {.warmups = 2, .repeats = setup.repeats}, .device = device};
  if (device.is_cpu()) run.kind = cpu_kind(instruction_names());
  if (!asked.shape.empty()) run.length = shape["T"];
  Progress progress("bench goals", 0);
  run.report = [&, group = int64_t{0}](const std::string& name) mutable { progress.update(group++, name); };
  std::vector<Goal> goals;
  run.measured = [&](const std::vector<Goal>& more) { goals.insert(goals.end(), more.begin(), more.end()); };
  const char* clock = device.is_cpu() ? "processor time, where two threads run of the clock" : "the GPU's clock";
  const auto show = [&] {
    progress.finish();
    return show_goals(goals,
                      text(of_kind(run.kind), "Ratio: of ", clock,
                           ". Reached: within 5 %. Every operator was first checked against float64.\n"),
                      setup, request);
  };
  try {
    measure_goals(run);
  } catch (const Interrupted&) {  // minutes of work, of which nothing is lost
    if (!goals.empty()) show();
    throw;
  }
  return show();
}

int bench_train_goals(const nlohmann::json& request, const BenchRequest& asked) {
  if (!asked.mechanisms.empty()) fail_usage("--mechanisms is given with --goals, which have their own");
  const at::Device device = parse_device(asked.device);
  OptionTable sizes = train_shape_options().table();
  const std::string kind = device.is_cpu() ? cpu_kind(instruction_names()) : "";
  const TrainGoals goals = device.is_cpu() ? cpu_train_goals(kind) : gpu_train_goals();
  const nlohmann::json goal = train_shape_options().write(goals.shape);
  for (Option& option : sizes) option.default_value = goal.at(option.name);
  TrainBench bench{.shape = train_shape_options().read(parse_shape(asked.shape, sizes)), .contenders = {}};
  output_format(request);  // refused before anything runs
  const Setup setup{.threads = device.is_cpu() ? two_threads(request) : request_threads(request),
                    .repeats = repeats_of(asked, 7),
                    .device = device};
  bench.python = asked.python;
  bench.threads = setup.threads;
  bench.device = setup.device;
  bench.turns = {.warmups = 2, .repeats = setup.repeats};
  const TrainShape& s = bench.shape;
  return show_goals(measure_train_goals(bench, goals),
                    text(of_kind(kind), "Ratio: of tokens/s of a training step in ",
                         word_of(train_dtypes(), goals.dtype), ", ", s.layers, " layers of width ", s.hidden, ", ", s.B,
                         " rows of ", s.T, ". Times: of as many tokens. Reached: within 5 %.\n"),
                    setup, request);
}

}  // namespace motet
