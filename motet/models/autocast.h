#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// While it lives and is `on`, this thread computes matrix products in bfloat16 and norms, softmax and losses in
/// float32 (torch's autocast of that kind of device); afterwards as before.
class AutocastScope {
 public:
  explicit AutocastScope(bool on, at::DeviceType = at::kCPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool begins_;
};

}  // namespace motet
