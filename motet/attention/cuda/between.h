#pragma once
#include "motet/attention/cuda/problem.h"

// Everything between two products of matrices as functions; between.cu.
namespace motet::cuda::between {

int64_t workspace_bytes(const plain::Problem&, Pass);
const char* forward(const plain::Problem&, const Between&, const Runtime&);
const char* backward(const plain::Problem&, const BetweenBack&, const Gradients&, const Runtime&);

}  // namespace motet::cuda::between
