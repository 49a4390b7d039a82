#pragma once
#include "motet/attention/cuda/problem.h"

// The decode kernels as functions; decode.cu.
namespace motet::cuda::decode {

const char* why_not(const plain::Problem&, Pass);
int64_t workspace_bytes(const plain::Problem&, Pass);
const char* forward(const plain::Problem&, const Output&, const Runtime&);

}  // namespace motet::cuda::decode
