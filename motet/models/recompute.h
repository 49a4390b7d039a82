#pragma once
#include <functional>

#include "motet/ops/torch.h"

namespace motet {

/// function(x) as one node of the graph that keeps x alone: the backward pass computes the function again, with the
/// same operations, so gradients have the same bits. Parameters that it reads get their gradients too. Without
/// gradients it is function(x). Source: arXiv:1604.06174.
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> function);

}  // namespace motet
