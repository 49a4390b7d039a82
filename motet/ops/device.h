#pragma once
#include <span>
#include <string>
#include <vector>

#include "motet/ops/torch.h"

namespace motet {

/// "auto" (the first GPU if there is one, else the CPU), "cpu", "cuda" or "cuda:N"; or a backend that somebody added to
/// this process, by its name. Throws UsageError for other names, for CUDA in a PyTorch that was built without it, and
/// for a GPU that is not there.
at::Device parse_device(const std::string&);

/// Waits until the device has done all that it was asked for; the CPU always has.
void synchronize(at::Device);

/// Token ids as a row [1,T], int64.
Tensor ids_tensor(std::span<const int32_t> ids, at::Device = at::kCPU);
Tensor ids_tensor(std::span<const int64_t> ids, at::Device = at::kCPU);

}  // namespace motet
