#pragma once
#include "motet/attention/cuda/problem.h"

// The general kernels as functions; general.cu.
namespace motet::cuda::general {

const char* why_not(const plain::Problem&);
int64_t workspace_bytes(const plain::Problem&, Pass);
const char* forward(const plain::Problem&, const Output&, const Runtime&);
const char* backward(const plain::Problem&, const plain::Operand& dout, const Gradients&, const Runtime&);
const char* lse(const plain::Problem&, float* lse, const Runtime&);
const char* given_lse(const plain::Problem&, const float* lse, void* out, const Runtime&);

}  // namespace motet::cuda::general
