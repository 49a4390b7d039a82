#pragma once
#include "motet/ops/torch.h"

namespace motet::ops {

/// Rows [first, first + count) of x [B,T,...], which lie where they lay: narrow() along T, in inference mode on the CPU
/// without torch's dispatcher, whose calls cost more than what decoding does with a row.
Tensor rows(const Tensor& x, int64_t first, int64_t count);
/// Of the first `count` rows of x [B,S,X] the numbers from `column` on that `shape` takes: [B,count,shape...], where
/// they lie. Views as above.
Tensor columns(const Tensor& x_BSX, int64_t count, int64_t column, at::IntArrayRef shape);
/// The way back: tensors [B,N,...] as columns [B,N,X], in new memory where there are several.
Tensor side_by_side(at::TensorList);

}  // namespace motet::ops
