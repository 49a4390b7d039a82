#pragma once
#include "motet/attention/cuda/general-inl.h"

// The forward pass of the general kernels in two phases: what a mix after the softmax sums are weights of several
// heads, so the normalisers of all heads come first.
namespace motet::cuda::general {

/// stats of the queries of this block over its part of the keys, and their lse where there is one part.
template <class Made>
MOTET_KERNEL(kThreads)
row_stats(const MOTET_PARAMETER Call c) {
  using Sized = Tile<Made>;
  constexpr int kOwn = Sized::kOwn, kLoop = Sized::kLoop;
  if (Sized::left_out(c)) return;
  Sized tile(c);
  constexpr int kItems = kMaxHeads * kOwn / kThreads;
  float top[kItems], sum[kItems];
  MOTET_UNROLL
  for (int i = 0; i < kItems; ++i) top[i] = -INFINITY, sum[i] = 0;
  const Span keys = part_of<kLoop>(tile.sight.keys(tile.own0, tile.own0 + kOwn), blockIdx.z, c.parts);
  const int items = c.a.softmax_heads * kOwn;
  for (int s = keys.begin; s < keys.end; s += kLoop) {
    if (!tile.start(s)) continue;
    const Buffer logits = tile.logits();
    MOTET_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int item = tile.thread + i * kThreads, row = item % kOwn;  // (head, row)
      if (item >= items) continue;
      float most = top[i];
      for (int l = 0; l < kLoop; ++l) {
        const int at = (l + item) % kLoop;  // items begin at different banks
        if (tile.seen.get(row * kLoop + at)) most = larger_or_nan(most, logits.get(item * kLoop + at));
      }
      if (most == -INFINITY) continue;
      float total = sum[i] * expf(top[i] - most);
      for (int l = 0; l < kLoop; ++l) {
        const int at = (l + item) % kLoop;
        if (tile.seen.get(row * kLoop + at)) total += expf(logits.get(item * kLoop + at) - most);
      }
      top[i] = most, sum[i] = total;
    }
  }
  MOTET_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const int item = tile.thread + i * kThreads, t = tile.own0 + item % kOwn;
    if (item >= items || t >= c.a.T) continue;
    keep_stats(c, tile.b, item / kOwn, t, top[i], sum[i]);
  }
}

/// Outputs of the queries of this block under the stats, of one chunk of units and one part of the keys.
template <int kLoop>
MOTET_KERNEL(kThreads)
outputs(const MOTET_PARAMETER Call c) {
  using Sized = Tile<Products<false, kLoop>>;
  if (Sized::left_out(c)) return;
  Sized tile(c);
  const Args& a = c.a;
  const int part = blockIdx.z % c.parts, chunk = blockIdx.z / c.parts, blocks = (a.E + kColumns - 1) / kColumns;
  const int first = chunk * kUnits / blocks, end = smaller(((chunk + 1) * kUnits - 1) / blocks + 1, a.output_heads);
  const Span keys = part_of<kLoop>(tile.sight.keys(tile.own0, tile.own0 + Sized::kOwn), part, c.parts);
  typename Sized::Sums sums = {};
  for (int s = keys.begin; s < keys.end; s += kLoop) {
    if (!tile.start(s)) continue;
    tile.weights(c.stats);
    const Buffer mixed = tile.post(tile.w, tile.x, first, end);
    tile.values(sums, mixed, a.v, a.value_of, a.output_heads, a.output_heads, a.E, chunk);
  }
  if (c.parts == 1) {
    tile.write(sums, c.out, a.q.type, a.T, a.output_heads, a.E, chunk, 1);
  } else {
    float* to = c.partial_out + static_cast<int64_t>(part) * a.B * a.T * a.output_heads * a.E;
    tile.write(sums, to, plain::Type::float32, a.T, a.output_heads, a.E, chunk, 1);
  }
}

}  // namespace motet::cuda::general
