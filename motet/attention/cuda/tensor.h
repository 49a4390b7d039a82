#pragma once
#include "motet/attention/cuda/problem.h"

// The tensor-core kernels as functions; tensor.cu. Sequences whose numbers float16 cannot hold go to the general
// kernels; what they do not take goes to the next row of library.cu.
namespace motet::cuda::tensor {

const char* why_not(const plain::Problem&, Pass);
int64_t workspace_bytes(const plain::Problem&, Pass);
const char* forward(const plain::Problem&, const Output&, const Runtime&);
const char* backward(const plain::Problem&, const Incoming&, const Gradients&, const Runtime&);

}  // namespace motet::cuda::tensor
