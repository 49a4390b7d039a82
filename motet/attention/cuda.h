#pragma once
#include "motet/attention/cuda/problem.h"
#include "motet/attention/kernels.h"

// The CUDA kernels as functions of tensors, with kernels of the caller's choice: the kernel table uses those of
// libmotet_cuda.so, tests the emulated ones, on tensors of the CPU.
namespace motet {

/// Why `api` does not run the problem, wherever its tensors lie; "" when it does.
std::string cuda_why_not(const Problem&, const cuda::Api& api);

Attended cuda_forward(const Problem&, const cuda::Api&);
Gradients cuda_backward(const Problem&, const Backward&, const cuda::Api&);
Tensor cuda_lse(const Problem&, const cuda::Api&);
Tensor cuda_given_lse(const Problem&, const Tensor& lse_BHT, const cuda::Api&);

}  // namespace motet
