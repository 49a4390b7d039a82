#pragma once
#include "motet/attention/cuda/general-inl.h"

// The forward pass of the general kernels in two phases: what a mix after the softmax sums are weights of several
// heads, so the normalisers of all heads come first.
namespace motet::cuda::general {

/// stats of the queries of this block over its part of the keys, and their lse where there is one part.
template <int kLoop>
MOTET_KERNEL(kThreads)
row_stats(const MOTET_PARAMETER Call c) {
  if (Tile<false, kLoop>::left_out(c)) return;
  Tile<false, kLoop> tile(c);
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
      for (int l = 0; l < kLoop; ++l)
        if (tile.seen.get(row * kLoop + l)) most = fmaxf(most, logits.get(item * kLoop + l));
      if (most == -INFINITY) continue;
      float total = sum[i] * expf(top[i] - most);
      for (int l = 0; l < kLoop; ++l) {
        const int at = (l + row) % kLoop;  // rows begin at different banks
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

/// stats and lse of all keys from those of the parts; with an lse that is given, stats from it.
MOTET_KERNEL(kThreads)
join_stats(const MOTET_PARAMETER Call c) {
  const int64_t rows = static_cast<int64_t>(c.a.B) * c.a.softmax_heads * c.a.T;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows || (c.only && !c.only[at / c.a.T / c.a.softmax_heads])) return;
  if (!c.parts) {
    c.stats[at] = {c.lse[at], 1};
    return;
  }
  float top = -INFINITY, sum = 0;
  for (int part = 0; part < c.parts; ++part) top = fmaxf(top, c.stats[part * rows + at].x);
  for (int part = 0; part < c.parts; ++part) {
    const float2 one = c.stats[part * rows + at];
    if (one.x != -INFINITY || one.y != 0) sum += one.y * expf(one.x - top);
  }
  c.stats[at] = {top, sum};
  if (c.lse) c.lse[at] = sum == 0 ? -INFINITY : top + logf(sum);
}

/// Outputs of the queries of this block under the stats, of one chunk of units and one part of the keys.
template <int kLoop>
MOTET_KERNEL(kThreads)
outputs(const MOTET_PARAMETER Call c) {
  if (Tile<false, kLoop>::left_out(c)) return;
  Tile<false, kLoop> tile(c);
  const Args& a = c.a;
  const int part = blockIdx.z % c.parts, chunk = blockIdx.z / c.parts, blocks = (a.E + kColumns - 1) / kColumns;
  const int first = chunk * kUnits / blocks, end = smaller(((chunk + 1) * kUnits - 1) / blocks + 1, a.output_heads);
  const Span keys = part_of<kLoop>(tile.sight.keys(tile.own0, tile.own0 + kOwn), part, c.parts);
  typename Tile<false, kLoop>::Sums sums = {};
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

/// out from those of the parts, in their order.
MOTET_KERNEL(kThreads)
join_outputs(const MOTET_PARAMETER Call c) {
  const int64_t count = static_cast<int64_t>(c.a.B) * c.a.T * c.a.output_heads * c.a.E;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count || (c.only && !c.only[at / (count / c.a.B)])) return;
  float sum = 0;
  for (int part = 0; part < c.parts; ++part) sum += c.partial_out[part * count + at];
  store(c.out, c.a.q.type, at, sum);
}

}  // namespace motet::cuda::general
