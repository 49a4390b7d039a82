#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// x [B,S,G,D] -> [B,S,H,D], where head h is the stored head table[h]; x itself when every head is its own.
Tensor spread_heads(const Tensor& x_BSGD, const std::vector<int64_t>& table);
/// The other way: what the heads [B,S,H,D] that read one stored head sum to, in the shape [B,S,stored,D].
Tensor summed_heads(const Tensor& dx_BSHD, const std::vector<int64_t>& table, int64_t stored);

}  // namespace motet
