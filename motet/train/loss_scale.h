#pragma once
#include <nlohmann/json.hpp>

#include "motet/ops/torch.h"

namespace motet {

/// The factor of the loss under float16, whose gradients would vanish without it: halved, and the step left out, when a
/// gradient is not finite, doubled after 2000 steps in which all were. As torch.amp.GradScaler. Source:
/// arXiv:1710.03740.
class LossScale {
 public:
  explicit LossScale(bool on) : on_(on) {}

  bool on() const { return on_; }
  double value() const { return on_ ? scale_ : 1; }
  /// Makes gradients of the scaled loss those of `times` the loss.
  void unscale(const std::vector<Tensor>& gradients, double times) const;
  /// After each step. Whether it counts: false when its gradients were not finite.
  bool update(bool finite);
  /// Whether a gradient that is not finite is the scale's fault: it is on and can still be halved.
  bool can_fall() const { return on_ && scale_ > 1; }

  nlohmann::json state() const { return {{"scale", scale_}, {"finite_steps", finite_steps_}}; }
  void restore(const nlohmann::json&);

 private:
  bool on_;
  double scale_ = 65536;
  int64_t finite_steps_ = 0;  // since the scale changed
};

}  // namespace motet
