#pragma once
#include "motet/attention/cuda/problem.h"

// The tensor-core kernels as functions; tensor.cu. What they do not take, and sequences whose numbers float16 cannot
// hold, go to the general kernels.
namespace motet::cuda::tensor {

const char* why_not(const plain::Problem&, Pass);
int64_t workspace_bytes(const plain::Problem&, Pass);
const char* forward(const plain::Problem&, const Output&, const Runtime&);
const char* backward(const plain::Problem&, const Incoming&, const Gradients&, const Runtime&);

}  // namespace motet::cuda::tensor
