#pragma once
#include "motet/attention/cuda/general-inl.h"

// The backward pass of the general kernels: row sums of P dP, then everything that belongs to queries (a block owns 16
// of them and walks the keys), then everything that belongs to keys (the other way round). Who owns a row alone adds to
// its gradients, in the order of its walk: no atomics, the same bits every time. Gradients of the parts of mixes are
// summed where they end up; those of a static weight a block each, then over the blocks.
namespace motet::cuda::general {

/// What both halves do on one tile; gradients of the mixes belong to the first chunk.
template <class Made>
struct BackwardTile : Tile<Made> {
  using Base = Tile<Made>;
  using Base::a, Base::b, Base::own0, Base::thread, Base::x, Base::w, Base::g, Base::y, Base::kPairs, Base::kOwnKeys,
      Base::kOwn, Base::kLoop;
  const Call& c;

  MOTET_DEVICE explicit BackwardTile(const Call& call) : Base(call), c(call) {}

  /// dP, from dout . v in g; P in w. Where the mixes' gradients are wanted they are added to.
  MOTET_DEVICE Buffer weights_back(bool mixes) {
    Base::weights(c.stats);
    Base::output_gradients(g);
    if (mixes && a.post.any) Base::hide(a.post, w);
    block_sync();
    const Buffer result = Base::post_back(g, y);
    if (mixes) {
      mix_gradients(a.post, w, g, c.to.post, c.weight_sums_post);
      if (!kOwnKeys && c.to.lambda) lambda_gradients();
    }
    return result;
  }

  /// dA: gradients of the scores.
  MOTET_DEVICE Buffer scores_back(bool mixes) {
    const Buffer dp = weights_back(mixes);
    if (mixes && a.pre.any) Base::hide(a.pre, x);
    for (int item = thread; item < a.softmax_heads * kPairs; item += kThreads) {
      const int h = item / kPairs, pair = item % kPairs;
      float dl = 0;
      if (Base::seen.get(pair)) {
        const int64_t row = (static_cast<int64_t>(b) * a.softmax_heads + h) * a.T + Base::query(pair);
        dl = w.get(item) * (dp.get(item) - c.row_sums[row]);
      }
      y.set(item, dl);
    }
    block_sync();
    const Buffer result = Base::template mixed<true>(a.pre, y, g, 0, a.score_heads);
    if (mixes) mix_gradients(a.pre, x, y, c.to.pre, c.weight_sums_pre);
    return result;
  }

  /// Zeros for the gradients that this block adds to.
  MOTET_DEVICE void clear() const {
    clear_mix(a.pre, c.to.pre, c.weight_sums_pre);
    clear_mix(a.post, c.to.post, c.weight_sums_post);
    if (!kOwnKeys && c.to.lambda) clear_rows(c.to.lambda, a.output_heads);
    block_sync();
  }

 private:
  using Parts = std::array<float*, kNumMixParts>;

  MOTET_DEVICE int rows() const { return kOwnKeys ? a.S : a.T; }
  MOTET_DEVICE float* own_row(float* to, int row, int numbers) const {
    return to + (static_cast<int64_t>(b) * rows() + own0 + row) * numbers;
  }
  MOTET_DEVICE void clear_rows(float* to, int numbers) const {
    for (int item = thread; item < kOwn * numbers; item += kThreads)
      if (own0 + item / numbers < rows()) own_row(to, item / numbers, numbers)[item % numbers] = 0;
  }
  MOTET_DEVICE void clear_mix(const Mix& m, const Parts& to, float* weight_sums) const {
    for (int part = kOwnKeys ? kKeyDown : kQueryDown; part <= (kOwnKeys ? kKeyFull : kQueryFull); ++part)
      if (to[part]) clear_rows(to[part], part_numbers(m, part));
    if (!kOwnKeys && to[kWeight])
      for (int item = thread; item < m.in * m.out; item += kThreads)
        weight_sums[static_cast<int64_t>(blockIdx.x) * m.in * m.out + item] = 0;
  }

  // to[i][j] of each row += sum over the walk's tile of u[i] v[j]; or to[i] += u[i] v[i].
  MOTET_DEVICE void add_outer(float* to, Buffer u, int nu, Buffer v, int nv) const {
    if (!to) return;
    for (int item = thread; item < nu * nv * kOwn; item += kThreads)
      add(to, nu * nv, item, u, item / kOwn / nv, v, item / kOwn % nv);
  }
  MOTET_DEVICE void add_diagonal(float* to, Buffer u, Buffer v, int n) const {
    if (!to) return;
    for (int item = thread; item < n * kOwn; item += kThreads) add(to, n, item, u, item / kOwn, v, item / kOwn);
  }
  MOTET_DEVICE void add(float* to, int numbers, int item, Buffer u, int i, Buffer v, int j) const {
    const int row = item % kOwn;
    if (own0 + row >= rows()) return;
    float sum = 0;
    for (int l = 0; l < kLoop; ++l) {
      const int at = row * kLoop + (l + item) % kLoop;  // items begin at different banks
      sum = fmaf(u.get(i * kPairs + at), v.get(j * kPairs + at), sum);
    }
    own_row(to, row, numbers)[item / kOwn] += sum;
  }

  // Gradients of the parts of this block's side of a mix with input `in` and gradient `from`; ranks are in hidden,
  // back.
  MOTET_DEVICE void mix_gradients(const Mix& m, Buffer in, Buffer from, const Parts& to, float* weight_sums) const {
    if (!m.any) return;
    const int down = kOwnKeys ? kKeyDown : kQueryDown, rank = kOwnKeys ? m.key_rank : m.query_rank;
    const uint32_t skip = (kOwnKeys ? m.query_rank : 0) * kPairs * 4;
    add_outer(to[down], {Base::back.at + skip}, rank, in, m.in);
    add_outer(to[down + 1], {Base::hidden.at + skip}, rank, from, m.out);
    add_diagonal(to[down + 2], in, from, m.out);
    add_outer(to[down + 3], in, m.in, from, m.out);
    if (!kOwnKeys && to[kWeight])
      for (int item = thread; item < m.in * m.out; item += kThreads) {
        float sum = 0;
        for (int p = 0; p < kPairs; ++p) {
          const int at = (p + item) % kPairs;
          sum = fmaf(in.get(item / m.out * kPairs + at), from.get(item % m.out * kPairs + at), sum);
        }
        weight_sums[static_cast<int64_t>(blockIdx.x) * m.in * m.out + item] += sum;
      }
    block_sync();  // hidden and back may change
  }

  MOTET_DEVICE void lambda_gradients() const {
    for (int item = thread; item < a.output_heads * kOwn; item += kThreads) {
      const int h = item / kOwn, row = item % kOwn;
      if (own0 + row >= a.T) continue;
      float sum = 0;
      for (int l = 0; l < kLoop; ++l) {
        const int at = row * kLoop + (l + item) % kLoop;
        sum = fmaf(g.get(h * kPairs + at), w.get((2 * h + 1) * kPairs + at), sum);
      }
      own_row(c.to.lambda, row, a.output_heads)[h] -= sum;
    }
  }
};

/// row_sums of the queries of this block.
template <class Made>
MOTET_KERNEL(kThreads)
sum_rows(const MOTET_PARAMETER Call c) {
  using Sized = BackwardTile<Made>;
  constexpr int kOwn = Sized::kOwn, kLoop = Sized::kLoop;
  if (Sized::left_out(c)) return;
  Sized tile(c);
  constexpr int kItems = kMaxHeads * kOwn / kThreads;
  float sum[kItems] = {};
  const Span keys = tile.sight.keys(tile.own0, tile.own0 + kOwn);
  const int items = c.a.softmax_heads * kOwn;
  for (int s = keys.begin; s < keys.end; s += kLoop) {
    if (!tile.start(s)) continue;
    const Buffer dp = tile.weights_back(false);
    MOTET_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int item = tile.thread + i * kThreads;
      if (item >= items) continue;
      for (int l = 0; l < kLoop; ++l) {
        const int at = item * kLoop + (l + item) % kLoop;
        sum[i] = fmaf(tile.w.get(at), dp.get(at), sum[i]);
      }
    }
  }
  MOTET_UNROLL
  for (int i = 0; i < kItems; ++i) {
    const int item = tile.thread + i * kThreads, t = tile.own0 + item % kOwn;
    if (item < items && t < c.a.T)
      c.row_sums[(static_cast<int64_t>(tile.b) * c.a.softmax_heads + item / kOwn) * c.a.T + t] = sum[i];
  }
}

/// dq of one chunk of units; with the first also the gradients of the mixes' static and query parts and lambda.
template <int kLoop>
MOTET_KERNEL(kThreads)
query_gradients(const MOTET_PARAMETER Call c) {
  using Sized = BackwardTile<Products<false, kLoop>>;
  if (Sized::left_out(c)) return;
  Sized tile(c);
  const Args& a = c.a;
  const int chunk = blockIdx.z;
  if (chunk == 0) tile.clear();
  typename Sized::Sums sums = {};
  const Span keys = tile.sight.keys(tile.own0, tile.own0 + Sized::kOwn);
  for (int s = keys.begin; s < keys.end; s += kLoop) {
    if (!tile.start(s)) continue;
    const Buffer da = tile.scores_back(chunk == 0);
    if (c.to.q) tile.values(sums, da, a.k, a.key_of, a.score_heads, a.score_heads, a.D, chunk);
  }
  if (c.to.q) tile.write(sums, c.to.q, a.q.type, a.T, a.score_heads, a.D, chunk, a.scale);
}

/// dk, then dv, of one chunk of units each; with the first of dk also the gradients of the mixes' key parts.
template <int kLoop>
MOTET_KERNEL(kThreads)
key_gradients(const MOTET_PARAMETER Call c) {
  using Sized = BackwardTile<Products<true, kLoop>>;
  if (Sized::left_out(c)) return;
  Sized tile(c);
  const Args& a = c.a;
  const int key_chunks = (a.key_heads * ((a.D + kColumns - 1) / kColumns) + kUnits - 1) / kUnits;
  const bool keys = blockIdx.z < key_chunks;
  const int chunk = keys ? blockIdx.z : blockIdx.z - key_chunks;
  if (keys && chunk == 0) tile.clear();
  typename Sized::Sums sums = {};
  const Span queries = tile.sight.queries(tile.own0, tile.own0 + Sized::kOwn);
  for (int t = queries.begin; t < queries.end; t += kLoop) {
    if (!tile.start(t)) continue;
    if (keys) {
      const Buffer da = tile.scores_back(chunk == 0);
      if (c.to.k) tile.values(sums, da, a.q, a.key_of, a.score_heads, a.key_heads, a.D, chunk);
    } else if (c.to.v) {
      tile.weights(c.stats);
      const Buffer mixed = tile.post(tile.w, tile.g, 0, a.output_heads);
      tile.values(sums, mixed, a.dout, a.value_of, a.output_heads, a.value_heads, a.E, chunk);
    }
  }
  if (keys && c.to.k) tile.write(sums, c.to.k, a.k.type, a.S, a.key_heads, a.D, chunk, a.scale);
  if (!keys && c.to.v) tile.write(sums, c.to.v, a.v.type, a.S, a.value_heads, a.E, chunk, 1);
}

}  // namespace motet::cuda::general
