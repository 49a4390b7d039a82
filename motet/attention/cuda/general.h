#pragma once
#include "motet/attention/cuda/problem.h"

// The general kernels as functions; general.cu.
namespace motet::cuda::general {

const char* why_not(const plain::Problem&);
int64_t workspace_bytes(const plain::Problem&, Pass);
/// Everything, or the sequences that `only` [B] names: of the others nothing is read or written, and the gradients of
/// static weights are added to.
const char* forward(const plain::Problem&, const Output&, const Runtime&, const int* only = nullptr);
const char* backward(const plain::Problem&, const Incoming&, const Gradients&, const Runtime&,
                     const int* only = nullptr);
const char* lse(const plain::Problem&, float* lse, const Runtime&);
const char* given_lse(const plain::Problem&, const float* lse, void* out, const Runtime&);

}  // namespace motet::cuda::general
