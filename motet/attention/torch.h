#pragma once
// The one include of LibTorch: the precompiled header of every file that uses tensors.
#include <torch/torch.h>

#include <torch/library.h>

namespace motet {
using at::Tensor;
}  // namespace motet
