#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// Memory for all matrices of a model in one piece, in large pages where the system has them: every token reads it from
/// end to end, and with pages of 4 KiB that is a quarter slower (measured: 21 and 30 GB/s).
class WeightArena {
 public:
  /// Room for `bytes`, each tensor rounded up to kAlignment. Throws Error when there is no memory.
  explicit WeightArena(int64_t bytes);
  /// A tensor in it; it lives as long as the tensor.
  Tensor take(at::IntArrayRef sizes, at::ScalarType);

  static constexpr int64_t kAlignment = 64;

 private:
  Tensor bytes_;
  int64_t used_ = 0;
};

}  // namespace motet
