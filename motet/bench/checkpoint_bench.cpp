#include "motet/bench/checkpoint_bench.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"
#include "motet/train/run_checkpoints.h"
#include "motet/train/trainer.h"

namespace motet {

CheckpointTimes measure_checkpoint(const TrainShape& s, const nlohmann::json& attention, Turns turns,
                                   at::Device device) {
  const TextData data = random_tokens(s.vocab, s.T);
  RunConfig run;
  run.model = {
      .hidden_size = s.hidden, .num_layers = s.layers, .intermediate_size = s.intermediate, .tie_embeddings = s.tied};
  run.attention_given = attention;
  run.train = {.steps = 2, .context = s.T, .batch_size = s.B, .device = device.str()};
  Model model(run.model_config(s.vocab), device);
  model->initialize(1);
  Trainer trainer(model, data, run.train);
  trainer.step();  // as a run has the optimiser's tensors

  Snapshot snapshot{.state = {}, .model = model_files(*model, {}), .optimizer = trainer.tensors()};
  CheckpointTimes result{.parameters = model->num_parameters(), .bytes = snapshot.bytes()};
  const AtomicFolder folder(std::filesystem::temp_directory_path() / text("motet-bench-", ::getpid()));  // never kept
  CheckpointWriter in_turn(folder.path() / "in_turn", 1, 0, false), aside(folder.path() / "aside", 1, 0, true);
  const auto each = [&](const auto& f) {
    for (const auto* all : {&snapshot.model.parameters, &snapshot.optimizer})
      for (const auto& [name, tensor] : *all) f(tensor);
  };
  result.room = timed([&] { aside.make_room(snapshot), aside.wait(); });
  std::vector<char> memory(static_cast<size_t>(result.bytes), 1);
  std::vector<Time> copies, held_up, written;
  Progress progress("bench checkpoint", turns.warmups + turns.repeats);
  for (int64_t turn = 0; turn < turns.warmups + turns.repeats; ++turn) {
    progress.update(turn, "");
    check_interrupt();
    snapshot.state["step"] = turn + 1;
    const Time copy = timed([&] {
      char* to = memory.data();
      each([&](const Tensor& t) {
        if (t.is_cpu())
          std::memcpy(to, t.const_data_ptr(), t.nbytes());
        else
          at::from_blob(to, t.sizes(), t.options().device(at::kCPU)).copy_(t);
        to += t.nbytes();
      });
    });
    const Time until_next = timed([&] { aside.save(snapshot); }, device);
    aside.wait();
    const Time whole = timed([&] { in_turn.save(snapshot); }, device);
    if (turn < turns.warmups) continue;
    copies.push_back(copy), held_up.push_back(until_next), written.push_back(whole);
  }
  progress.finish();
  result.copy = median(copies), result.held_up = median(held_up), result.written = median(written);
  return result;
}

}  // namespace motet
