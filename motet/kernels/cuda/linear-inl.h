#pragma once
#include "motet/kernels/cuda/team-inl.h"

// Linear layers of few rows on weights in fewer bits: what takes time is reading those, once. A warp owns kOutputs rows
// of W and meets them with all rows of x, four numbers a lane, so that a warp reads neighbouring ones of both. A
// product's order of sums is the same whatever else is multiplied beside it.
namespace motet::cuda::step {

struct KeptLinearCall {
  KeptLinear n;
  float* y;
};

inline constexpr int kLinearThreads = 128, kLinearWarps = kLinearThreads / 32;
inline constexpr int kAhead = 4;  // pieces of 128 numbers that are asked for together

template <int kRows, int kOutputs, NumberType kType>
MOTET_KERNEL(kLinearThreads)
kept_linear_rows(const MOTET_PARAMETER KeptLinearCall c) {
  constexpr int kSize = bytes_of(kType);  // of a number, and words of four
  const KeptLinear& n = c.n;
  const int lane = threadIdx.x % 32, rows = static_cast<int>(n.rows), K = static_cast<int>(n.columns);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kLinearWarps + threadIdx.x / 32) * kOutputs;
  if (first >= n.outputs) return;
  const char* w[kOutputs];  // the last row of W again beyond it
  MOTET_UNROLL
  for (int o = 0; o < kOutputs; ++o) {
    const int64_t row = first + o < n.outputs ? first + o : n.outputs - 1;
    w[o] = static_cast<const char*>(n.weight) + row * K * kSize;
  }
  float sum[kRows][kOutputs] = {};
  for (int begin = 4 * lane; begin < K; begin += kAhead * 128) {
    uint32_t bits[kAhead][kOutputs][kSize];
    MOTET_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      MOTET_UNROLL
      for (int o = 0; o < kOutputs; ++o)
        if (begin + ahead * 128 < K) read_words<kSize>(w[o] + (begin + ahead * 128) * kSize, bits[ahead][o]);
    }
    MOTET_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int k = begin + ahead * 128;
      if (k >= K) break;
      float wide[kOutputs][4];
      MOTET_UNROLL
      for (int o = 0; o < kOutputs; ++o) {
        MOTET_UNROLL
        for (int j = 0; j < 4; ++j) {
          if constexpr (kType == NumberType::int8) {
            wide[o][j] = widen_int8(bits[ahead][o][0], j);
          } else {
            const auto half = static_cast<uint16_t>(bits[ahead][o][j / 2] >> 16 * (j % 2));
            wide[o][j] = kType == NumberType::bfloat16 ? widen_bfloat16(half) : widen_float16(half);
          }
        }
      }
      MOTET_UNROLL
      for (int m = 0; m < kRows; ++m) {
        if (m >= rows) break;
        float x[4];
        read_vector(n.x + static_cast<int64_t>(m) * K + k, x);
        MOTET_UNROLL
        for (int o = 0; o < kOutputs; ++o) {
          MOTET_UNROLL
          for (int j = 0; j < 4; ++j) sum[m][o] = fmaf(x[j], wide[o][j], sum[m][o]);
        }
      }
    }
  }
  MOTET_UNROLL
  for (int m = 0; m < kRows; ++m) {
    if (m >= rows) break;
    MOTET_UNROLL
    for (int o = 0; o < kOutputs; ++o) {
      float y = sum[m][o];
      MOTET_UNROLL
      for (int step = 16; step > 0; step /= 2) y += shuffle_xor(y, step);
      if (lane != 0 || first + o >= n.outputs) continue;
      // fmaf by name, or a compiler may join them in one form of this kernel and not in another
      y = fmaf(y, n.scale ? n.scale[first + o] : 1.f, n.bias ? n.bias[first + o] : 0.f);
      c.y[static_cast<int64_t>(m) * n.outputs + first + o] = y;
    }
  }
}

// ---- the host's half -----------------------------------------------------------------------------------------------

inline const char* kept_linear(const KeptLinear& n, float* y, const Runtime& run) {
  Launches to(run.stream);
  const auto launch_with = [&](auto rows, auto outputs) {
    const int64_t blocks = blocks_of(n.outputs, kLinearWarps * outputs.value);
    const auto launch = [&](auto kernel) { to.run(kernel, blocks, 1, kLinearThreads, 0, KeptLinearCall{n, y}); };
    if (n.type == NumberType::int8)
      launch(kept_linear_rows<rows.value, outputs.value, NumberType::int8>);
    else if (n.type == NumberType::bfloat16)
      launch(kept_linear_rows<rows.value, outputs.value, NumberType::bfloat16>);
    else
      launch(kept_linear_rows<rows.value, outputs.value, NumberType::float16>);
  };
  using One = std::integral_constant<int, 1>;
  using Four = std::integral_constant<int, 4>;
  if (n.rows == 1)
    launch_with(One(), One());
  else if (n.rows <= 4)
    launch_with(Four(), Four());
  else if (n.rows <= 8)
    launch_with(std::integral_constant<int, 8>(), Four());
  else
    launch_with(std::integral_constant<int, kMostKeptRows>(), Four());
  return to.error();
}

}  // namespace motet::cuda::step
