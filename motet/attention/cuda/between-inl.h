#pragma once
#include "motet/attention/cuda/general_backward-inl.h"
#include "motet/attention/cuda/general_forward-inl.h"

// Everything between products of matrices that are made elsewhere, for some queries and all their keys: scores and
// dout . v come in float32, weights and gradients of the scores go out in q's type, whole, 0 where a pair is not seen.
// Mixes, softmax and the gradients of mixes are the general kernels'.
namespace motet::cuda::general {

/// A tile whose products lie in memory. A block owns 4 queries, and 16 keys, for a row of the products is one of keys.
template <bool kByKey, int kPairsOfTile>
struct Stored : MixedTile<kByKey, kPairsOfTile / (kByKey ? 16 : 4), kByKey ? 16 : 4> {
  using Base = MixedTile<kByKey, kPairsOfTile / (kByKey ? 16 : 4), kByKey ? 16 : 4>;
  using Base::a, Base::b, Base::thread, Base::seen, Base::kPairs, Base::kOwnKeys, Base::kOwn, Base::kLoop, Base::query,
      Base::key;
  static constexpr int kFloats = 0;
  const Call& call;

  MOTET_DEVICE explicit Stored(const Call& c) : Base(c.a), call(c) {}

  MOTET_DEVICE void scores(Buffer to) const { fetch(to, call.scores, a.score_heads, a.scale); }
  MOTET_DEVICE void output_gradients(Buffer to) const { fetch(to, call.dmixed, a.output_heads, 1); }

  /// Stores a tile, times factor; zeros of one that nobody sees.
  MOTET_DEVICE void keep(Buffer from, bool any, void* to, int heads, float factor) const {
    for (int item = thread; item < heads * kPairs; item += kThreads) {
      const int head = item / kPairs, pair = item % kPairs;
      if (query(pair) < a.T && key(pair) < a.S)
        store(to, a.q.type, place(head, heads, pair), any ? from.get(item) * factor : 0.f);
    }
  }

 private:
  // The items of a tile so that neighbours are neighbouring keys.
  MOTET_DEVICE static int pair_of(int item) {
    const int i = item % kPairs;
    return kOwnKeys ? i % kOwn * kLoop + i / kOwn : i;
  }
  MOTET_DEVICE int64_t place(int head, int heads, int pair) const {
    return ((static_cast<int64_t>(b) * heads + head) * a.T + query(pair)) * a.S + key(pair);
  }
  MOTET_DEVICE void fetch(Buffer to, const float* from, int heads, float factor) const {
    for (int item = thread; item < heads * kPairs; item += kThreads) {
      const int head = item / kPairs, pair = pair_of(item);
      to.set(head * kPairs + pair, seen.get(pair) ? from[place(head, heads, pair)] * factor : 0.f);
    }
  }
};

/// Weights after the post mix, under the stats of the rows.
template <int kPairs>
MOTET_KERNEL(kThreads)
mixed_weights(const MOTET_PARAMETER Call c) {
  Tile<Stored<false, kPairs>> tile(c);
  for (int s = 0; s < c.a.S; s += tile.kLoop) {
    Buffer mixed = tile.x;
    const bool any = tile.start(s);
    if (any) {
      tile.weights(c.stats);
      mixed = tile.post(tile.w, tile.x, 0, c.a.output_heads);
    }
    tile.keep(mixed, any, c.weights, c.a.output_heads, 1);
  }
}

/// Gradients of q . k; with them those of the mixes' static and query parts and of lambda.
template <int kPairs>
MOTET_KERNEL_BESIDE(kThreads, 2)
score_gradients(const MOTET_PARAMETER Call c) {
  BackwardTile<Stored<false, kPairs>> tile(c);
  tile.clear();
  for (int s = 0; s < c.a.S; s += tile.kLoop) {
    Buffer gradients = tile.g;
    const bool any = tile.start(s);
    if (any) gradients = tile.scores_back(true);
    tile.keep(gradients, any, c.dscores, c.a.score_heads, c.a.scale);
  }
}

/// Gradients of the mixes' key parts.
template <int kPairs>
MOTET_KERNEL_BESIDE(kThreads, 2)
key_part_gradients(const MOTET_PARAMETER Call c) {
  BackwardTile<Stored<true, kPairs>> tile(c);
  tile.clear();
  const Span queries = tile.sight.queries(tile.own0, tile.own0 + tile.kOwn);
  for (int t = queries.begin; t < queries.end; t += tile.kLoop)
    if (tile.start(t)) tile.scores_back(true);
}

}  // namespace motet::cuda::general
