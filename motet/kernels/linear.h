#pragma once
#include <span>

#include "motet/core/number_type.h"
#include "motet/core/threads.h"

namespace motet {

/// How the weights of a linear layer are kept. int8: each row has a scale of its own.
using WeightType = NumberType;

/// W [N,K] of a linear layer and its bias; the rows stand one after another.
struct Weight {
  WeightType type = WeightType::float32;
  const void* data = nullptr;    // [N,K]
  const float* scale = nullptr;  // [N], int8 alone: row n stands for scale[n] * data[n]
  const float* bias = nullptr;   // [N], or null
  int64_t N = 0, K = 0;
};

/// One of several layers that read the same input: y [M,N] without gaps, y = x W^T + bias.
struct LinearTask {
  Weight weight;
  float* y = nullptr;
};

/// Rows that a step of decoding computes at once.
inline constexpr int64_t kMaxLinearRows = 16;

/// All tasks on x [M,K] (rows without gaps, M at least 1, every weight of this K). The weights are read once for each
/// 128 rows or more; sums are in float32, or with weights in 8 bits exact where the CPU multiplies bytes
/// (linear_bytes.h), and depend neither on M nor on the threads: a row of x gives the same bits in any company.
void linear(std::span<const LinearTask> tasks, const float* x, int64_t M, const Threads& threads);

/// w [N,K] to 8 bits: scale[n] = max |w[n]| / 127 (1 for a row of zeros), values rounded to nearest.
void quantize_rows(const float* w, int64_t N, int64_t K, int8_t* values, float* scale);

/// Rows [first, first + count) as float32 [count,K].
void dequantize_rows(const Weight&, int64_t first, int64_t count, float* to);

}  // namespace motet
