#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// While it lives this thread computes matrix products in this type, bfloat16 or float16, and norms, softmax and losses
/// in float32 (torch's autocast of that kind of device); afterwards as before. Without a type it does nothing. No cast
/// is kept for another use: gradients of several uses meet in float32, whether a layer is computed once or again.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<at::ScalarType>, at::DeviceType = at::kCPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool begins_, cached_;
};

}  // namespace motet
