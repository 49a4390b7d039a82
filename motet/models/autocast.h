#pragma once
#include "motet/attention/torch.h"

namespace motet {

/// While it lives and is `on`, this thread computes matrix products in bfloat16 and norms, softmax and losses in
/// float32 (torch's autocast on the CPU); afterwards as before.
class AutocastScope {
 public:
  explicit AutocastScope(bool on);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  bool begins_;
};

}  // namespace motet
