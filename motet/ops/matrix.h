#pragma once
#include <string>
#include <vector>

#include "motet/kernels/linear.h"
#include "motet/ops/arena.h"

namespace motet {

/// The words of weight_types() (options.h).
const char* name(WeightType);
WeightType parse_weight_type(const std::string& name);  // throws UsageError

/// W [N,K] of a linear layer or an embedding. `kept`: bfloat16, float16 or int8 numbers that stand for float32 ones in
/// inference, where row n of int8 stands for scale[n] * values[n]. `mapped`: they lie in a file, memory that the system
/// counts as free.
struct Matrix {
  Tensor values_NK, scale_N = {};
  bool kept = false, mapped = false;
};

/// W [N,K], float32, in fewer bits, in memory of the arena; or, of a W on another device than the CPU, there. Throws
/// Error for another dtype, and for a finite number that float16 has not.
Matrix kept_in(WeightType, const Tensor& weight_NK, WeightArena&);
Matrix on_device(const Matrix&, at::Device);
/// As the kernels take it, without a bias.
Weight as_weight(const Matrix&);
/// What W takes of an arena.
int64_t arena_bytes(WeightType, int64_t rows, int64_t columns);

/// The numbers that W stands for; float32 if kept. Throws Error for a kept one while gradients are on.
Tensor widened(const Matrix&);

}  // namespace motet
