#pragma once
#include "motet/attention/problem.h"

namespace motet {

/// The operator as a user of PyTorch would write it, differentiable: every intermediate in the inputs' dtype but the
/// softmax's own. What rounding in 16 bits is measured beside, and what `motet bench` times as eager;
/// causal, with or without a window, no bias and no table.
Tensor eager(const Problem&);

}  // namespace motet
