#pragma once
#include "motet/kernels/cuda/team-inl.h"

// Linear layers of few rows on weights in fewer bits: what takes time is reading those, once. A warp owns kOutputs rows
// of W, 16 bytes of each at a time, and meets them with all rows of x. A product's order of sums is the same whatever
// else is multiplied beside it.
namespace motet::cuda::step {

struct KeptLinearCall {
  KeptLinear n;
  float* y;
};

inline constexpr int kLinearThreads = 128, kLinearWarps = kLinearThreads / 32;

/// Numbers [4 i, 4 i + 4) of 16 bytes.
template <bool kEightBits>
MOTET_DEVICE void widen_four(const uint4& bits, int i, float* to) {
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  MOTET_UNROLL
  for (int j = 0; j < 4; ++j) {
    if constexpr (kEightBits)
      to[j] = widen_int8(words[i], j);
    else
      to[j] = widen_bfloat16(static_cast<uint16_t>(words[2 * i + j / 2] >> 16 * (j % 2)));
  }
}

template <int kRows, int kOutputs, bool kEightBits>
MOTET_KERNEL(kLinearThreads)
kept_linear_rows(const MOTET_PARAMETER KeptLinearCall c) {
  constexpr int kNumbers = kEightBits ? 16 : 8, kSize = 16 / kNumbers;
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
  for (int k = lane * kNumbers; k < K; k += 32 * kNumbers) {
    uint4 bits[kOutputs];
    MOTET_UNROLL
    for (int o = 0; o < kOutputs; ++o) bits[o] = read16(w[o] + k * kSize);
    MOTET_UNROLL
    for (int i = 0; i < kNumbers / 4; ++i) {
      float wide[kOutputs][4];
      MOTET_UNROLL
      for (int o = 0; o < kOutputs; ++o) widen_four<kEightBits>(bits[o], i, wide[o]);
      MOTET_UNROLL
      for (int m = 0; m < kRows; ++m) {
        if (m >= rows) break;
        float x[4];
        read_vector(n.x + static_cast<int64_t>(m) * K + k + 4 * i, x);
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
      if (n.scale) y *= n.scale[first + o];
      if (n.bias) y += n.bias[first + o];
      c.y[static_cast<int64_t>(m) * n.outputs + first + o] = y;
    }
  }
}

// ---- the host's half -----------------------------------------------------------------------------------------------

inline const char* kept_linear(const KeptLinear& n, float* y, const Runtime& run) {
  Launches to(run.stream);
  const auto launch_with = [&](auto rows, auto outputs) {
    const int64_t blocks = blocks_of(n.outputs, kLinearWarps * outputs.value);
    if (n.scale)
      to.run(kept_linear_rows<rows.value, outputs.value, true>, blocks, 1, kLinearThreads, 0, KeptLinearCall{n, y});
    else
      to.run(kept_linear_rows<rows.value, outputs.value, false>, blocks, 1, kLinearThreads, 0, KeptLinearCall{n, y});
  };
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Four = std::integral_constant<int, 4>;
  if (n.rows == 1)
    launch_with(One(), One());
  else if (n.rows <= 4)
    launch_with(Four(), Four());
  else if (n.rows <= 8)
    launch_with(std::integral_constant<int, 8>(), Four());
  else
    launch_with(std::integral_constant<int, kMostKeptRows>(), Two());
  return to.error();
}

}  // namespace motet::cuda::step
