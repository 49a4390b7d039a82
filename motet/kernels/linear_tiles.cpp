// Compiled once for each instruction set.
//
// y^T = W x^T: rows of W are a product's first operand, as they lie, and x is turned once for all of them.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/kernels/linear_tiles.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "motet/core/aligned.h"
#include "motet/core/parts-inl.h"
#include "motet/core/tiles.h"
#include "motet/kernels/linear_tiles.h"

#ifndef MOTET_KERNELS_LINEAR_TILES_ONCE
#define MOTET_KERNELS_LINEAR_TILES_ONCE
namespace motet {
namespace {

constexpr int64_t kBlock = 2 * kTileRows;  // rows of W and of x that are multiplied at once: four tiles of sums

struct TiledCall {
  std::span<const LinearTask> tasks;
  const float* x;
  int64_t M, K;
  int parts;      // of a float32 number
  int64_t pairs;  // of a row, whole tiles of them
  bool emulated;

  int64_t x_block() const { return parts * pairs * kBlock; }  // floats of 32 rows of x, or of W at most
};

}  // namespace
}  // namespace motet
#endif

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE {
namespace {

using parts::split_row;
using parts::with_parts;

// Of a weight: 8-bit numbers are bfloat16 ones, and 11 bits are two of 8.
int parts_of(const TiledCall& call, WeightType type) {
  return type == WeightType::float32 ? call.parts : type == WeightType::float16 ? std::min(call.parts, 2) : 1;
}

// Rows [first, first + kBlock) of W, those that there are, to [part][kBlock][pairs]; `wide` holds one. The number of
// parts.
int weights(const TiledCall& call, Weight w, int64_t first, float* wide, float* to) {
  const int count = parts_of(call, w.type);
  w.scale = nullptr;  // which the sums meet
  std::fill_n(to, count * kBlock * call.pairs, 0.f);
  for (int64_t n = first; n < std::min(first + kBlock, w.N); ++n, to += call.pairs) {
    if (w.type == WeightType::bfloat16) {
      std::memcpy(to, static_cast<const uint16_t*>(w.data) + n * w.K, 2 * static_cast<size_t>(w.K));
      continue;
    }
    const float* row = wide;
    if (w.type == WeightType::float32)
      row = static_cast<const float*>(w.data) + n * w.K;
    else
      dequantize_rows(w, n, 1, wide);
    with_parts(count, [&](auto number) HWY_ATTR { split_row<number()>(row, w.K, to, kBlock * call.pairs); });
  }
  return count;
}

// Sums [row of W][row of x] of a block of each: the smallest products of parts first, so that a sum rounds by what it
// is in the end. Products of parts that are less than the least part are left out.
template <class Tiles>
HWY_INLINE void product(const TiledCall& call, const float* w, int of_w, const float* x, bool both, float* sums) {
  Tiles::template zero<0>(), Tiles::template zero<1>(), Tiles::template zero<2>(), Tiles::template zero<3>();
  for (int least = call.parts - 1; least >= 0; --least)
    for (int i = std::min(least, of_w - 1); i >= 0; --i) {
      const float* a = w + i * kBlock * call.pairs;
      const float* b = x + (least - i) * call.pairs * kBlock;
      for (int64_t k = 0; k < call.pairs; k += kTilePairs, a += kTilePairs, b += kTilePairs * kBlock) {
        Tiles::template load<4>(a, call.pairs), Tiles::template load<5>(a + kTileRows * call.pairs, call.pairs);
        Tiles::template load<6>(b, kBlock);
        Tiles::template multiply<0, 4, 6>(), Tiles::template multiply<1, 5, 6>();
        if (!both) continue;
        Tiles::template load<7>(b + kTileRows, kBlock);
        Tiles::template multiply<2, 4, 7>(), Tiles::template multiply<3, 5, 7>();
      }
    }
  Tiles::template store<0>(sums, kBlock), Tiles::template store<1>(sums + kTileRows * kBlock, kBlock);
  Tiles::template store<2>(sums + kTileRows, kBlock);
  Tiles::template store<3>(sums + kTileRows * kBlock + kTileRows, kBlock);
}

void write(const LinearTask& task, const float* sums, int64_t n0, int64_t m0, int64_t M) {
  const Weight& w = task.weight;
  for (int64_t m = 0; m < std::min(kBlock, M - m0); ++m)
    for (int64_t n = 0; n < std::min(kBlock, w.N - n0); ++n)
      task.y[(m0 + m) * w.N + n0 + n] =
          sums[n * kBlock + m] * (w.scale ? w.scale[n0 + n] : 1) + (w.bias ? w.bias[n0 + n] : 0);
}

// Blocks [begin, end) of a task's rows of W with the rows [m0, m1) of x, turned.
template <class Tiles>
void blocks(const TiledCall& call, const LinearTask& task, int64_t begin, int64_t end, int64_t m0, int64_t m1,
            const float* turned, float* space) {
  TileShapes shapes;
  for (int i = 0; i < kTiles; ++i) shapes.set(i, kTileRows, kTilePairs);
  Tiles::configure(shapes);
  float* const sums = space + call.x_block();
  for (int64_t block = begin; block < end; ++block) {
    const int of_w = weights(call, task.weight, block * kBlock, sums + kBlock * kBlock, space);
    for (int64_t m = m0; m < m1; m += kBlock) {
      product<Tiles>(call, space, of_w, turned + (m - m0) * call.parts * call.pairs, m1 - m > kTileRows, sums);
      write(task, sums, block * kBlock, m, m1);
    }
  }
  Tiles::release();
}

}  // namespace

// Rows [first, first + kBlock) of x, those that there are, to [part][pairs][kBlock].
void turn_rows(const TiledCall& call, int64_t first, float* row, float* to) {
  std::fill_n(to, call.x_block(), 0.f);
  std::fill_n(row, call.parts * call.pairs, 0.f);
  for (int64_t m = 0; m < std::min(kBlock, call.M - first); ++m) {
    with_parts(call.parts, [&](auto number) HWY_ATTR {
      split_row<number()>(call.x + (first + m) * call.K, call.K, row, call.pairs);
    });
    for (int64_t i = 0; i < call.parts * call.pairs; ++i) to[i * kBlock + m] = row[i];
  }
}

void tiled_blocks(const TiledCall& call, const LinearTask& task, int64_t begin, int64_t end, int64_t m0, int64_t m1,
                  const float* turned, float* space) {
#if defined(__x86_64__)
  if (!call.emulated) return blocks<HardwareTiles>(call, task, begin, end, m0, m1, turned, space);
#endif
  blocks<EmulatedTiles>(call, task, begin, end, m0, m1, turned, space);
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "motet/kernels/best.h"

namespace motet {
namespace {

constexpr int64_t kRowsAtOnce = 512;  // of x: memory that is linear in them, and every one of them pays for W's parts
constexpr int64_t kBlocksOfStripe = 2;

// Blocks [begin, end) of all tasks, one behind the other.
template <class Part>
void for_each_part(std::span<const LinearTask> tasks, int64_t begin, int64_t end, const Part& part) {
  for (const LinearTask& task : tasks) {
    const int64_t count = (task.weight.N + kBlock - 1) / kBlock;
    if (begin < count && end > 0) part(task, std::max<int64_t>(begin, 0), std::min(end, count));
    begin -= count, end -= count;
  }
}

void run(const TiledCall& call, const Threads& threads) {
  int64_t blocks = 0;
  for (const LinearTask& task : call.tasks) blocks += (task.weight.N + kBlock - 1) / kBlock;
  const int64_t stripes = (blocks + kBlocksOfStripe - 1) / kBlocksOfStripe,
                workers = std::min<int64_t>(stripes, threads.count), most = std::min(call.M, kRowsAtOnce),
                x_blocks = (most + kBlock - 1) / kBlock, of_worker = call.x_block() + kBlock * kBlock + 2 * call.pairs;
  const auto space = aligned_array<float>(x_blocks * call.x_block() + workers * of_worker);
  float* const of_workers = space.get() + x_blocks * call.x_block();
  const auto turn = MOTET_BEST(turn_rows);
  const auto multiply = MOTET_BEST(tiled_blocks);
  for (int64_t m0 = 0; m0 < call.M; m0 += kRowsAtOnce) {
    const int64_t m1 = std::min(call.M, m0 + kRowsAtOnce);
    std::atomic<int64_t> next{0}, turned{0};
    threads.run(workers, [&](int64_t worker) {
      for (int64_t i; (i = turned.fetch_add(1, std::memory_order_relaxed)) < (m1 - m0 + kBlock - 1) / kBlock;)
        turn(call, m0 + i * kBlock, of_workers + worker * of_worker, space.get() + i * call.x_block());
    });
    threads.run(workers, [&](int64_t worker) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < stripes;)
        for_each_part(call.tasks, i * kBlocksOfStripe, (i + 1) * kBlocksOfStripe,
                      [&](const LinearTask& task, int64_t begin, int64_t end) {
                        multiply(call, task, begin, end, m0, m1, space.get(), of_workers + worker * of_worker);
                      });
    });
  }
}

void run(std::span<const LinearTask> tasks, const float* x, int64_t M, Precision precision, const Threads& threads,
         bool emulated) {
  const int64_t K = tasks.front().weight.K, pairs = (K + 2 * kTilePairs - 1) / (2 * kTilePairs) * kTilePairs;
  run({tasks, x, M, K, precision == Precision::high ? 2 : 3, pairs, emulated}, threads);
}

}  // namespace

void linear_by_tiles(std::span<const LinearTask> tasks, const float* x, int64_t M, Precision precision,
                     const Threads& threads) {
  run(tasks, x, M, precision, threads, false);
}

void linear_by_emulated_tiles(std::span<const LinearTask> tasks, const float* x, int64_t M, Precision precision,
                              const Threads& threads) {
  run(tasks, x, M, precision, threads, true);
}

}  // namespace motet
#endif
