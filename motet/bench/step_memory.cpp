#include "motet/bench/step_memory.h"

#include "motet/attention/fused.h"
#include "motet/bench/returning_heap.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"
#include "motet/train/loss.h"
#include "motet/train/run_config.h"

namespace motet {

StepMemory measure_step_memory(const TrainShape& s, const nlohmann::json& attention, const StepWay& way,
                               at::Device device) {
  const ReturningHeap heap;
  RunConfig run;
  run.model = {
      .hidden_size = s.hidden, .num_layers = s.layers, .intermediate_size = s.intermediate, .tie_embeddings = s.tied};
  run.attention_given = attention;
  run.train = {.context = s.T, .batch_size = s.B, .loss_rows = way.loss_rows, .recompute = way.recompute};
  Model model(run.model_config(s.vocab), device);
  model->initialize(1);
  model->set_recompute(way.recompute == Recompute::block);
  StepMemory use;
  for (Tensor& p : model->parameters()) {
    p.mutable_grad() = at::zeros_like(p);  // as those of the micro batch before
    use.tensors += 2 * static_cast<int64_t>(p.nbytes());
  }
  const auto pass = [&](int64_t tokens, int64_t rows) {
    const Tensor ids = at::randint(s.vocab, {rows, tokens + 1}, at::TensorOptions(at::kLong).device(device));
    const TokenTensors batch{ids.slice(1, 0, tokens), ids.slice(1, 1), {}};
    training_loss(*model, batch, run.train).objective.backward();
  };
  pass(std::min<int64_t>(s.T, 64), 1);  // libraries and pools
  release_fused_memory();
  malloc_trim(0);
  if (!reset_peak_memory(device)) fail("bench memory: the peak of the memory in use cannot be reset on ", device.str());
  const int64_t before = used_memory(device);
  use.time = timed([&] { pass(s.T, s.B); }, device);
  use.beyond = peak_memory(device) - before;
  return use;
}

}  // namespace motet
