#include "motet/bench/attention_bench.h"
#include "motet/bench/machine.h"
#include "motet/bench/shape.h"
#include "motet/bench/train_bench.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/core/progress.h"
#include "motet/core/version.h"

namespace motet {
namespace {

OptionTable request_options(int64_t fewest_repeats) {
  using enum OptionType;
  return {{"shape", string, "", {}, {}, {}, "sizes between commas"},
          {"repeats", integer, 9, static_cast<double>(fewest_repeats), 10000, {}, "measurements; the median counts"},
          {"python", string, "", {}, {}, {}, "the Python that runs the rival"}};
}

bool for_people(const nlohmann::json& request) {
  const TableFormat format = output_format(request);
  return format == TableFormat::table || format == TableFormat::markdown;
}

// What a reader of the numbers has to know: below the table, or columns of each row for programs.
struct Setup {
  int64_t threads, repeats;
};
void add_setup(Table& table, const Setup& setup, const nlohmann::json& request) {
  const std::pair<const char*, Cell> facts[] = {{"repeats", {std::to_string(setup.repeats), setup.repeats}},
                                                {"threads", {std::to_string(setup.threads), setup.threads}},
                                                {"processor", processor_name()},
                                                {"motet", kVersion},
                                                {"torch", torch_version()}};
  if (for_people(request)) {
    table.note += text("Medians of ", setup.repeats, "; ", setup.threads, setup.threads == 1 ? " thread" : " threads",
                       " of ", processor_name(), "; motet ", kVersion, ", torch ", torch_version(), ".");
    return;
  }
  for (const auto& [name, cell] : facts) {
    table.columns.push_back({name});
    for (auto& row : table.rows) row.push_back(cell);
  }
}

Cell milliseconds(double seconds) { return {fixed(1e3 * seconds, 2), 1e3 * seconds}; }
Cell ratio(double x) { return {fixed(x, 2), x}; }
Cell count(int64_t n) { return {std::to_string(n), n}; }

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

int bench_attention(const nlohmann::json& request) {
  const nlohmann::json values = request_values(request_options(5), request);
  const std::vector<AttentionCase> cases = attention_cases(values["shape"]);
  const bool people = for_people(request);
  const Setup setup{request_threads(request), values["repeats"]};
  Table table = attention_table(people);
  Progress progress("bench attention", static_cast<int64_t>(cases.size()));
  int64_t done = 0;
  for (const AttentionCase& what : cases) {
    progress.update(done, what.mechanism);
    for (const AttentionTimes& times : measure_attention(what, {.warmups = 2, .repeats = setup.repeats}))
      table.rows.push_back(attention_row(times, people));
    progress.update(++done, what.mechanism);
  }
  progress.finish();
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

int bench_train(const nlohmann::json& request) {
  const nlohmann::json values = request_values(request_options(7), request);
  const nlohmann::json shape = parse_shape(values["shape"], train_shape_options());
  output_format(request);  // refused before anything runs
  nlohmann::json with_threads = request;
  if (!request.contains("threads")) with_threads["threads"] = std::min(2, processor_count());
  const Setup setup{request_threads(with_threads), values["repeats"]};
  const TrainTimes times = measure_training({.shape = shape,
                                             .python = values["python"],
                                             .threads = setup.threads,
                                             .turns = {.warmups = 2, .repeats = setup.repeats}});

  Table table{.columns = {{"program", Align::left},
                          {"parameters"},
                          {"step", Align::right, "ms", "wall_ms"},
                          {"CPU", Align::right, "ms", "cpu_ms"},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"ratio", Align::right, "", "ratio"}}};
  const auto rate = [&](const Time& t) { return static_cast<double>(times.tokens_per_step) / t.wall; };
  const auto row = [&](const char* name, const Time& t) {
    table.rows.push_back({name,
                          {short_count(static_cast<double>(times.parameters)), times.parameters},
                          milliseconds(t.wall),
                          milliseconds(t.cpu),
                          {fixed(rate(t), 0), rate(t)},
                          ratio(rate(t) / rate(times.rival))});
  };
  row("motet", times.ours);
  row("eager PyTorch", times.rival);
  if (for_people(request))
    table.note = text("One training step: forward, loss, backward, clipping, AdamW; ", times.tokens_per_step,
                      " tokens, float32. Two resident processes took turns step by step.\nRatio: of tokens/s; above 1 "
                      "is faster than eager PyTorch ",
                      times.rival_torch, ".\n");
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace

int run_bench(const nlohmann::json& request) {
  const std::string what = request.value("what", "");
  if (what == "attention") return bench_attention(request);
  if (what == "train") return bench_train(request);
  throw UsageError(unknown_name("benchmark", what, {"attention", "train"}));
}

}  // namespace motet
