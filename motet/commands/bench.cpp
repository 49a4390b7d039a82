#include "motet/bench/goals.h"
#include "motet/bench/memory_bench.h"
#include "motet/bench/shape.h"
#include "motet/bench/train_bench.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

std::vector<Cell> attention_row(const AttentionTimes& t, bool people) {
  const AttentionSize& n = t.what.size;
  std::vector<Cell> row{t.what.mechanism, count(n.B), count(n.T),
                        count(n.H),       count(n.D), t.backward ? "forward+backward" : "forward",
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
        "SDPA: PyTorch's causal multi-head attention of equal B, T, H and D. Eager: the same operator as unfused torch "
        "operations under autograd (our plain\n"
        "definition). CPU: of all threads. Below 1 is faster than the rival. Every operator was first checked against "
        "float64.\n";
  return table;
}

Cell limit(const Goal& goal) {
  if (goal.limit == 0) return {"-", nullptr};
  return {text(goal.at_least ? ">= " : "<= ", fixed(goal.limit, 2)), goal.limit};
}

// The goals and what each reaches; 1 when one falls short by more than 5 %.
int bench_goals(const nlohmann::json& request, const BenchRequest& asked) {
  const OptionTable only_length{attention_shape_options().front()};
  if (asked.device != "auto" && !parse_device(asked.device).is_cpu())
    fail_usage("--device: ", asked.device, " with --goals, want cpu: the goals are those of the fused CPU kernels");
  const nlohmann::json shape = parse_shape(asked.shape, only_length);
  output_format(request);  // refused before anything runs
  nlohmann::json with_threads = request;
  if (!request.contains("threads")) with_threads["threads"] = 1;  // the goals are those of one thread
  const Setup setup{request_threads(with_threads), repeats_of(asked, 5)};
  GoalRun run{.python = asked.python, .turns = {.warmups = 2, .repeats = setup.repeats}};
  if (!asked.shape.empty()) run.length = shape["T"];
  Progress progress("bench goals", 0);
  run.report = [&, group = int64_t{0}](const std::string& name) mutable { progress.update(group++, name); };
  const std::vector<Goal> goals = measure_goals(run);
  progress.finish();
  if (goals.empty()) fail_usage("--shape: no goal has T = ", run.length, ", want 16, 512, 1024, 2048 or 4096");
  Table table{.columns = {{"goal", Align::left},
                          {"ratio", Align::right, "", "ratio"},
                          {"limit", Align::right, "", "limit"},
                          {"", Align::left, "", "reached"},
                          {"time", Align::right, "ms", "cpu_ms"},
                          {"over", Align::right, "ms", "over_cpu_ms"},
                          {"clock", Align::right, "ms", "wall_ms"},
                          {"over", Align::right, "ms", "over_wall_ms"}}};
  bool all = true;
  for (const Goal& goal : goals) {
    all = all && goal.reached();
    table.rows.push_back({goal.what,
                          ratio(goal.measured()),
                          limit(goal),
                          {goal.limit == 0  ? ""
                           : goal.reached() ? "reached"
                                            : "SHORT",
                           goal.reached()},
                          milliseconds(goal.of_time.cpu),
                          milliseconds(goal.over_time.cpu),
                          milliseconds(goal.of_time.wall),
                          milliseconds(goal.over_time.wall)});
  }
  if (for_people(request))
    table.note =
        "Ratio: of processor time, where two threads run of the clock. Reached: within 5 %. Every operator was first "
        "checked "
        "against float64.\n";
  add_setup(table, setup, request);
  print_table(table, request);
  return all ? 0 : 1;
}

Cell mebibytes(int64_t bytes) { return {fixed(static_cast<double>(bytes) / (1 << 20), 1), bytes}; }

// Without --shape: dcmha of 16 heads of 64 at 1K, 4K and 16K.
int bench_memory(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const std::string& shape = asked.shape;
  std::vector<AttentionCase> cases;
  for (const char* length : {"1024", "4096", "16384"})
    if (shape.empty()) cases.push_back(attention_cases(text("H=16,mechanism=dcmha,T=", length)).front());
  if (!shape.empty()) cases = attention_cases(shape);
  output_format(request);
  const Setup setup{.threads = request_threads(request), .repeats = 1, .device = parse_device(asked.device)};
  Table table{.columns = {{"mechanism", Align::left},
                          {"B"},
                          {"T"},
                          {"H"},
                          {"D"},
                          {"tensors", Align::right, "MiB", "tensor_bytes"},
                          {"beyond", Align::right, "MiB", "beyond_bytes"},
                          {"time", Align::right, "ms", "wall_ms"}}};
  for (const AttentionCase& one : cases) {
    const MemoryUse use = measure_memory(one, setup.device);
    const AttentionSize& n = one.size;
    table.rows.push_back({one.mechanism, count(n.B), count(n.T), count(n.H), count(n.D), mebibytes(use.tensors),
                          mebibytes(use.beyond), milliseconds(use.time.wall)});
  }
  if (for_people(request))
    table.note =
        "One forward and backward pass, float32. Tensors: inputs, output, its gradient and the gradients. Beyond: peak "
        "memory beyond those; on the CPU what is resident.\n";
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

int bench_attention(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  if (asked.goals) return bench_goals(request, asked);
  const int64_t repeats = repeats_of(asked, 5);
  const std::vector<AttentionCase> cases = attention_cases(asked.shape);
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

int bench_train(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const int64_t repeats = repeats_of(asked, 7);
  const TrainShape shape = read_shape(asked.shape, train_shape_options());
  output_format(request);  // refused before anything runs
  nlohmann::json with_threads = request;
  if (!request.contains("threads")) with_threads["threads"] = std::min(2, processor_count());
  const Setup setup{.threads = request_threads(with_threads), .repeats = repeats, .device = parse_device(asked.device)};
  TrainBench bench{.shape = shape,
                   .contenders = {},
                   .python = asked.python,
                   .threads = setup.threads,
                   .device = setup.device,
                   .turns = {.warmups = 2, .repeats = setup.repeats}};
  nlohmann::json common{{"num_heads", shape.heads}};
  if (shape.kv_heads != 0) common["num_kv_heads"] = shape.kv_heads;
  for (const Arm& arm : parse_arms(asked.mechanisms.empty() ? "mha" : asked.mechanisms, common))
    bench.contenders.push_back({arm.label, arm.attention});
  const TrainTimes times = measure_training(bench);

  Table table{.columns = {{"program", Align::left},
                          {"parameters"},
                          {"step", Align::right, "ms", "wall_ms"},
                          {"CPU", Align::right, "ms", "cpu_ms"},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"ratio", Align::right, "", "ratio"},
                          {"to mha", Align::right, "", "ratio_to_mha"}}};
  const auto rate = [&](const TrainTime& t) { return static_cast<double>(times.tokens_per_step) / t.step.wall; };
  const TrainTime* mha = nullptr;
  for (const TrainTime& t : times.ours)
    if (t.name == "mha") mha = &t;
  const auto row = [&](const std::string& name, const TrainTime& t) {
    table.rows.push_back({name,
                          {short_count(static_cast<double>(t.parameters)), t.parameters},
                          milliseconds(t.step.wall),
                          milliseconds(t.step.cpu),
                          {fixed(rate(t), 0), rate(t)},
                          ratio(rate(t) / rate(times.rival)),
                          mha ? ratio(rate(t) / rate(*mha)) : Cell{"-", nullptr}});
  };
  for (const TrainTime& t : times.ours) row(text("motet ", t.name), t);
  row(times.rival.name, times.rival);
  if (for_people(request))
    table.note = text("One training step: forward, loss, backward, clipping, AdamW; ", times.tokens_per_step,
                      " tokens, float32. All models took turns step by step.\nRatio: of tokens/s; above 1 is faster "
                      "than plain attention in eager PyTorch ",
                      times.rival_torch, "; to mha: than our own.\n");
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace

int run_bench(const nlohmann::json& request) {
  const std::string what = request.value("what", "");
  if (what != "attention" && request.value("goals", false))
    fail_usage("--goals is given for ", what, ", want it for attention");
  if (what != "train" && what != "infer" && !request.value("mechanisms", std::string()).empty())
    fail_usage("--mechanisms is given for ", what, ", want it for train or infer");
  for (const char* field : {"model", "rivals", "weights"})
    if (what != "infer" && request.contains(field))
      fail_usage("--", field, " is given for ", what, ", want it for infer");
  if (what == "attention") return bench_attention(request);
  if (what == "memory") return bench_memory(request);
  if (what == "train") return bench_train(request);
  if (what == "infer") return bench_infer(request);
  throw UsageError(unknown_name("benchmark", what, {"attention", "memory", "train", "infer"}));
}

}  // namespace motet
