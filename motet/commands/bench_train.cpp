#include "motet/bench/checkpoint_bench.h"
#include "motet/bench/shape.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/request.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

// Those that the rival knows too.
const Words<TrainDtype>& training_types() {
  static const Words<TrainDtype> all{
      {"float32", TrainDtype::float32}, {"float64", TrainDtype::float64}, {"bfloat16", TrainDtype::bfloat16}};
  return all;
}

std::vector<TrainRival> rivals_of(const std::string& list) {
  static const Words<TrainRival> all{{"torch", {}}, {"compile", {"compiled PyTorch", {{"compile", true}}}}};
  std::vector<TrainRival> rivals;
  for (const std::string& name : split(list.empty() ? "torch" : list, ','))
    rivals.push_back(value_of(all, name, "rival"));
  return rivals;
}

// One model for each of --mechanisms, with --recompute another that computes its layers again.
std::vector<Contender> contenders_of(const BenchRequest& asked, const TrainShape& shape) {
  nlohmann::json common{{"num_heads", shape.heads}};
  if (shape.kv_heads != 0) common["num_kv_heads"] = shape.kv_heads;
  std::vector<Contender> all;
  for (const Arm& arm : parse_arms(asked.mechanisms.empty() ? "mha" : asked.mechanisms, common)) {
    all.push_back({arm.label, arm.attention});
    if (asked.recompute) all.push_back({arm.label + ", recompute", arm.attention, Recompute::block});
  }
  return all;
}

Setup setup_of(const nlohmann::json& request, const BenchRequest& asked, int64_t repeats) {
  return {.threads = two_threads(request), .repeats = repeats, .device = parse_device(asked.device)};
}

std::string key_of(const std::string& rival) {
  std::string key = "ratio_to_";
  for (const char c : rival) key += c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  return key;
}

}  // namespace

int bench_train(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  if (asked.goals) return bench_train_goals(request, asked);
  const int64_t repeats = repeats_of(asked, 7);
  const TrainShape shape = read_shape(asked.shape, train_shape_options());
  output_format(request);  // refused before anything runs
  TrainBench bench{.shape = shape,
                   .contenders = contenders_of(asked, shape),
                   .rivals = rivals_of(asked.rivals),
                   .dtype = value_of(training_types(), asked.dtype.empty() ? "float32" : asked.dtype, "--dtype"),
                   .python = asked.python};
  const Setup setup = setup_of(request, asked, repeats);
  bench.threads = setup.threads, bench.device = setup.device, bench.turns = {.warmups = 2, .repeats = setup.repeats};
  const TrainTimes times = measure_training(bench);

  Table table{.columns = {{"program", Align::left},
                          {"parameters"},
                          {"step", Align::right, "ms", "wall_ms"},
                          {"CPU", Align::right, "ms", "cpu_ms"},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"data", Align::right, "%", "data_percent"},
                          {"ratio", Align::right, "", "ratio"}}};
  for (size_t i = 1; i < times.rivals.size(); ++i)
    table.columns.push_back({"to " + times.rivals[i].name, Align::right, "", key_of(times.rivals[i].name)});
  table.columns.push_back({"to mha", Align::right, "", "ratio_to_mha"});
  const auto rate = [](const TrainTime& t) { return 1 / t.seconds_per_token(); };
  const TrainTime* mha = nullptr;
  for (const TrainTime& t : times.ours)
    if (t.name == "mha") mha = &t;
  const auto row = [&](const std::string& name, const TrainTime& t) {
    std::vector<Cell> cells{name,
                            {short_count(static_cast<double>(t.parameters)), t.parameters},
                            milliseconds(t.step.wall),
                            milliseconds(t.step.cpu),
                            {fixed(rate(t), 0), rate(t)},
                            t.data < 0 ? Cell{"-", nullptr} : Cell{fixed(100 * t.data, 3), 100 * t.data}};
    for (const TrainTime& rival : times.rivals) cells.push_back(ratio(rate(t) / rate(rival)));
    cells.push_back(mha ? ratio(rate(t) / rate(*mha)) : Cell{"-", nullptr});
    table.rows.push_back(std::move(cells));
  };
  for (const TrainTime& t : times.ours) row(text("motet ", t.name), t);
  for (const TrainTime& rival : times.rivals) row(rival.name, rival);
  if (for_people(request))
    table.note = text("One training step: forward, loss, backward, clipping, AdamW; ", times.rivals.front().tokens,
                      " tokens, ", word_of(train_dtypes(), bench.dtype),
                      ". All models took turns step by step.\nRatio: of tokens/s; above 1 ",
                      "is faster than plain attention in ", times.rivals.front().name, " ", times.rival_torch,
                      "; to mha: than our own.\n");
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

int bench_checkpoint(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const int64_t repeats = repeats_of(asked, 5, 5);
  TrainShape shape{.hidden = 576, .layers = 30, .heads = 9, .kv_heads = 3, .intermediate = 1536, .vocab = 49152};
  shape.T = 16, shape.B = 1, shape.tied = true;  // that of SmolLM2-135M; what a step reads does not matter
  if (!asked.shape.empty()) shape = read_shape(asked.shape, train_shape_options());
  output_format(request);
  const Setup setup = setup_of(request, asked, repeats);
  const CheckpointTimes times =
      measure_checkpoint(shape, {{"num_heads", shape.heads}, {"num_kv_heads", shape.kv_heads}},
                         {.warmups = 0, .repeats = setup.repeats}, setup.device);
  Table table{.columns = {{"of a checkpoint", Align::left, "", "what"},
                          {"parameters"},
                          {"MB", Align::right, "", "bytes"},
                          {"time", Align::right, "ms", "wall_ms"},
                          {"CPU", Align::right, "ms", "cpu_ms"},
                          {"of copying", Align::right, "", "ratio"}}};
  const auto row = [&](const char* what, const Time& time) {
    table.rows.push_back({what,
                          {short_count(static_cast<double>(times.parameters)), times.parameters},
                          {fixed(static_cast<double>(times.bytes) / 1e6, 0), times.bytes},
                          milliseconds(time.wall),
                          milliseconds(time.cpu),
                          ratio(time.wall / times.copy.wall)});
  };
  row("its bytes copied", times.copy);
  row("asynchronous, until the next step", times.held_up);
  row("written, until the next step", times.written);
  row("memory of the copies, beside the first steps", times.room);
  if (for_people(request))
    table.note = "Weights and the optimiser's state of one model, to the folder for temporary files.\n";
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
