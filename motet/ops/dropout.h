#pragma once
#include "motet/core/splitmix.h"
#include "motet/ops/torch.h"

namespace motet {

/// Which numbers become 0: drawn by a counter from a key and a number's place, so that the backward pass, a layer that
/// is computed again and another way to cut the batch draw the same, and nothing is kept.
struct Dropout {
  double p = 0;           // their part, 0 (none) to below 1, in steps of 2^-16
  uint64_t key = 0;       // of the step and the place in the model
  int64_t first_row = 0;  // number in the batch of x's first row

  /// That of a part of the model.
  Dropout at(uint64_t part) const { return {p, splitmix64(key, part), first_row}; }
};

namespace ops {

/// x [B,...] with a part p of its numbers 0 and the others times 1 / (1 - p), in x's dtype. Differentiable in x.
/// Source: arXiv:1207.0580.
Tensor dropout(const Tensor& x, const Dropout&, const char* kernel = nullptr);

}  // namespace ops
}  // namespace motet
