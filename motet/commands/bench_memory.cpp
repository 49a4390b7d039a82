#include "motet/bench/memory_bench.h"
#include "motet/bench/shape.h"
#include "motet/bench/step_memory.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/words.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

constexpr const char* kStep = "train=1";

Cell mebibytes(int64_t bytes) { return {fixed(static_cast<double>(bytes) / (1 << 20), 1), bytes}; }

// A model of many layers, whose activations count, and one of a large vocabulary, whose logits do.
const TrainShape kDeep{.hidden = 256, .layers = 24, .heads = 4, .vocab = 512, .T = 1024, .B = 1},
    kWide{.hidden = 64, .layers = 1, .heads = 1, .vocab = 50304, .T = 1024, .B = 8};

// "train=1" alone: those two; with sizes behind it: a model of these.
int bench_step_memory(const nlohmann::json& request, const BenchRequest& asked) {
  const std::string sizes = asked.shape == kStep ? "" : asked.shape.substr(std::string_view(kStep).size() + 1);
  std::vector<TrainShape> shapes{kDeep, kWide};
  if (!sizes.empty()) shapes = {read_shape(sizes, train_shape_options())};
  const std::vector<StepWay> ways{{"plain"},
                                  {"recompute = block", Recompute::block},
                                  {"loss_rows = 256", Recompute::none, 256},
                                  {"both", Recompute::block, 256}};
  output_format(request);
  const Setup setup{.threads = request_threads(request), .repeats = 1, .device = parse_device(asked.device)};
  Table table{.columns = {{"mechanism", Align::left},
                          {"layers"},
                          {"width"},
                          {"vocabulary"},
                          {"B"},
                          {"T"},
                          {"way", Align::left},
                          {"model", Align::right, "MiB", "tensor_bytes"},
                          {"beyond", Align::right, "MiB", "beyond_bytes"},
                          {"of plain", Align::right, "", "beyond_of_plain"},
                          {"time", Align::right, "ms", "wall_ms"},
                          {"of plain", Align::right, "", "time_of_plain"}}};
  const InterruptEnds nothing_is_saved(true);
  for (const TrainShape& s : shapes)
    for (const Arm& arm : parse_arms(asked.mechanisms.empty() ? "mha" : asked.mechanisms, {{"num_heads", s.heads}})) {
      StepMemory plain;
      for (const StepWay& way : ways) {
        const StepMemory use = measure_step_memory(s, arm.attention, way, setup.device);
        if (&way == &ways[0]) plain = use;
        const auto of = [](double a, double b) { return ratio(a / b); };
        table.rows.push_back({arm.label, count(s.layers), count(s.hidden), count(s.vocab), count(s.B), count(s.T),
                              way.name, mebibytes(use.tensors), mebibytes(use.beyond),
                              of(static_cast<double>(use.beyond), static_cast<double>(plain.beyond)),
                              milliseconds(use.time.wall), of(use.time.wall, plain.time.wall)});
      }
    }
  if (for_people(request))
    table.note =
        "Forward and backward of one batch, float32. Model: parameters and gradients. Beyond: peak memory beyond "
        "those; on "
        "the CPU what is resident.\n";
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace

// Without --shape: dcmha of 16 heads of 64 at 1K, 4K and 16K.
int bench_memory(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const std::string& shape = asked.shape;
  if (shape == kStep || shape.starts_with(text(kStep, ","))) return bench_step_memory(request, asked);
  if (!asked.mechanisms.empty())
    fail_usage("--mechanisms: an operator's memory is measured, want mechanism=NAME in --shape, or ", kStep, " there");
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
  const InterruptEnds nothing_is_saved(true);  // a pass may take a minute
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

}  // namespace motet
