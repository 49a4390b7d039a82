#pragma once
// The one include of LibTorch: the precompiled header of every file that uses tensors. Not torch/torch.h: what that
// adds (data loaders, all modules, serialisation) costs 7 s in each file.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/module.h>

namespace motet {
using at::Tensor;
}  // namespace motet
