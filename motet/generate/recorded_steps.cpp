#include "motet/generate/recorded_steps.h"

#include "motet/core/log.h"
#include "motet/ops/device.h"
#include "motet/ops/failure.h"

namespace motet {

Tensor RecordedSteps::step(ModelImpl& model, Cache& cache, int64_t length) const {
  const int64_t places = static_cast<int64_t>(cache.places().size()), batch = numbers_.size(0) - places;
  const Tensor ids_B1 = numbers_.narrow(0, 0, batch).unsqueeze(1);
  const Tensor hidden = cache.step_at(model, ids_B1, numbers_.narrow(0, batch, places), length);
  return model.logits(hidden.select(1, -1));
}

std::optional<Tensor> RecordedSteps::logits(ModelImpl& model, Cache& cache, std::span<const int64_t> ids,
                                            int64_t length) {
  if (refused_ || !Graph::why_not(model.device()).empty() || !cache.why_not_at().empty()) return {};
  c10::InferenceMode inference;
  std::vector<int64_t> numbers(ids.begin(), ids.end());
  const std::vector<int64_t> places = cache.places();
  numbers.insert(numbers.end(), places.begin(), places.end());
  Subject subject{&model, length, cache.options(), cache.memory()};
  if (graph_ && subject == subject_) {
    move_to(numbers_, numbers);
  } else {
    graph_.reset();
    numbers_ = moved(numbers, {static_cast<int64_t>(numbers.size())}, model.device());
    try {
      graph_.emplace(model.device(), [&] { logits_ = step(model, cache, length); });
    } catch (const c10::Error& error) {
      log_warn(text("steps of single tokens are not recorded on ", model.device().str(), ": ", told(error)));
      refused_ = true, logits_ = Tensor();
      return {};
    }
    subject_ = std::move(subject);
  }
  graph_->replay();
  cache.stepped();
  return logits_;
}

}  // namespace motet
