#pragma once
#include <type_traits>

#include "motet/cuda/launches.h"
#include "motet/cuda/numbers.h"
#include "motet/kernels/cuda/step.h"

// What the kernels of rows share: the threads of a row and their sums.
namespace motet::cuda::step {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;
inline constexpr int kTeamBytes = kWarps * sizeof(float);  // of shared memory, for sums over a block

/// The kLanes threads that share a row: lanes of a warp, or all of a block.
template <int kLanes>
struct Team {
  static constexpr int kTeams = kThreads / kLanes;  // of a block
  const int index, lane;
  MOTET_DEVICE Team() : index(threadIdx.x / kLanes), lane(threadIdx.x % kLanes) {}

  /// In each thread that of all; every thread of the block calls it.
  MOTET_DEVICE float sum(float x) const {
    return joined(x, [](float a, float b) { return a + b; });
  }
  MOTET_DEVICE float most(float x) const {
    return joined(x, [](float a, float b) { return fmaxf(a, b); });
  }

 private:
  template <class Join>
  MOTET_DEVICE float joined(float x, const Join& join) const {
    MOTET_UNROLL
    for (int step = (kLanes < 32 ? kLanes : 32) / 2; step > 0; step /= 2) x = join(x, shuffle_xor(x, step));
    if constexpr (kLanes > 32) {
      const Shared<float> of_warp{0};
      block_sync();  // nobody reads what was joined before any more
      if (threadIdx.x % 32 == 0) of_warp.set(threadIdx.x / 32, x);
      block_sync();
      x = of_warp.get(0);
      for (int w = 1; w < kWarps; ++w) x = join(x, of_warp.get(w));
    }
    return x;
  }
};

/// How many threads share a row of so many numbers.
inline int lanes_of(int64_t columns) { return columns <= 256 ? 8 : columns <= 1024 ? 32 : kThreads; }

/// f(lanes, count) as constants: the threads of a row, at least kLeast, and how many numbers each reads at once.
template <int kLeast = 8, class Function>
void with_team(int lanes, bool vectors, const Function& f) {
  const auto counted = [&](auto of_row) {
    if (vectors)
      f(of_row, std::integral_constant<int, kVector>());
    else
      f(of_row, std::integral_constant<int, 1>());
  };
  if constexpr (kLeast <= 8)
    if (lanes == 8) return counted(std::integral_constant<int, 8>());
  if (lanes == 32) return counted(std::integral_constant<int, 32>());
  counted(std::integral_constant<int, kThreads>());
}

/// Whether all of these may be read as vectors.
inline bool vector_rows(int64_t columns, std::initializer_list<Rows> all) {
  bool fit = columns % kVector == 0;
  for (const Rows& rows : all) fit &= holds_vectors(rows.data) && rows.stride % kVector == 0;
  return fit;
}

}  // namespace motet::cuda::step
