// A cell that measures how fast a mechanism is beside plain attention: both take turns in one process, the middle of
// many turns counts. Its seeds are repetitions.
#include "motet/bench/attention_bench.h"
#include "motet/bench/infer_bench.h"
#include "motet/bench/train_bench.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/core/fields.h"
#include "motet/lab/lab.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

using nlohmann::json;

enum class Measured { step, decode, attention };

struct BenchOptions {
  Measured measure = Measured::step;
  std::string mechanism = "mha";
  int64_t hidden = 256, layers = 4, heads = 8, T = 512, B = 4, vocab = 2048;
  int64_t depth = 0, head_dim = 64;
  int64_t repeats = 9;
};

const Fields<BenchOptions>& bench_cell_options() {
  using B = BenchOptions;
  static const Fields<B> table{
      {"measure",
       &B::measure,
       {{"step", Measured::step}, {"decode", Measured::decode}, {"attention", Measured::attention}},
       "a training step, a cached token, or the operator alone, forward and backward"},
      {"mechanism", &B::mechanism, "as a contender of a comparison; of attention, one of motet bench attention"},
      {"hidden", &B::hidden, {1, 1e6}, "numbers in a token"},
      {"layers", &B::layers, {1, 1e4}, "layers"},
      {"heads", &B::heads, {1, 1e4}, "heads of plain attention"},
      {"T", &B::T, {1, 1e7}, "tokens of a row; of decode, those made"},
      {"B", &B::B, {1, 1e6}, "rows"},
      {"vocab", &B::vocab, {1, 1e7}, "tokens known"},
      {"depth", &B::depth, {0, 1e7}, "decode: tokens in the cache"},
      {"head_dim", &B::head_dim, {1, 4096}, "attention: width of a head"},
      {"repeats", &B::repeats, {1, 10000}, "turns"}};
  return table;
}

BenchOptions read(const ExperimentCell& cell) { return bench_cell_options().parse(cell.options, "options"); }

// Rates of plain attention and of the mechanism. Plain attention beside itself is measured twice, as a control.
using Rates = std::array<double, 2>;

std::vector<Arm> arms_of(const BenchOptions& o) {
  std::vector<Arm> arms = parse_arms("mha", {{"num_heads", o.heads}});
  arms.push_back(parse_arms(o.mechanism, {{"num_heads", o.heads}})[0]);
  return arms;
}

Rates step_rates(const BenchOptions& o, const LabOptions& lab, CellResult& out) {
  TrainBench bench{
      .shape = {.hidden = o.hidden, .layers = o.layers, .heads = o.heads, .vocab = o.vocab, .T = o.T, .B = o.B},
      .rivals = {},
      .threads = lab.threads,
      .device = parse_device(lab.device),
      .turns = {.warmups = 2, .repeats = o.repeats}};
  for (const Arm& arm : arms_of(o)) bench.contenders.push_back({arm.label, arm.attention});
  const TrainTimes times = measure_training(bench);
  out.parameters = times.ours[1].parameters;
  return {1 / times.ours[0].seconds_per_token(), 1 / times.ours[1].seconds_per_token()};
}

Rates decode_rates(const BenchOptions& o, const LabOptions& lab, CellResult& out) {
  RunConfig run;
  run.model = {.hidden_size = o.hidden, .num_layers = o.layers, .tie_embeddings = true};
  run.train.context = o.depth + o.T;
  InferBench bench{
      .cases = {{false, o.T, o.depth}}, .threads = lab.threads, .turns = {.warmups = 1, .repeats = o.repeats}};
  double parameters = 0;
  for (const Arm& arm : arms_of(o)) {
    ModelConfig config = arm_config(run, arm, o.vocab);
    if (parameters > 0) match_size(config, Match::parameters, parameters);
    parameters = size_of(config, Match::parameters);
    Model model(config, parse_device(lab.device));
    model->initialize(1);
    bench.models.push_back({text(arm.label, bench.models.size()), model});
  }
  out.parameters = static_cast<int64_t>(parameters);
  const std::vector<InferResult> results = measure_inference(bench);
  return {1, results[1].rates[0].over(results[0].rates[0])};
}

Rates attention_rates(const BenchOptions& o, const LabOptions& lab, CellResult&) {
  const at::Device device = parse_device(lab.device);
  const Turns turns{.warmups = 2, .repeats = o.repeats};
  Rates rates;
  for (const size_t i : {0, 1}) {
    const AttentionCase what{.mechanism = i == 0 ? "mha" : o.mechanism,
                             .size = {.B = o.B, .T = o.T, .H = o.heads, .D = o.head_dim}};
    for (const AttentionTimes& times : measure_attention(what, turns, device))
      if (times.backward) rates[i] = times.sdpa.wall / times.ours.wall;  // PyTorch's takes its turn beside each
  }
  return rates;
}

json configuration(Lab& lab, const ExperimentCell& cell) {
  json all = bench_cell_options().write(read(cell));
  all["machine"] = lab.machine();  // times of two machines are not one measurement
  return all;
}

std::vector<std::string> metrics(Lab&, const ExperimentCell&) { return {"speed"}; }

void run(Lab& lab, const ExperimentCell& cell, CellResult& out, const CellProgress&) {
  const BenchOptions o = read(cell);
  at::set_num_threads(static_cast<int>(lab.options().threads));
  Rates (*const measure)(const BenchOptions&, const LabOptions&, CellResult&) = o.measure == Measured::step ? step_rates
                                                                                : o.measure == Measured::decode
                                                                                    ? decode_rates
                                                                                    : attention_rates;
  const Rates rates = measure(o, lab.options(), out);
  out.metrics["speed"] = rates[1] / rates[0];  // above 1: faster than plain attention
}

std::optional<double> seconds(Lab&, const ExperimentCell&) { return std::nullopt; }

}  // namespace

const CellKind kBenchCell{
    .name = "bench", .alone = true, .configuration = configuration, .metrics = metrics, .run = run, .seconds = seconds};

}  // namespace motet
