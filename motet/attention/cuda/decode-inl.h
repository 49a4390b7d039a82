#pragma once
#include "motet/attention/cuda/general-inl.h"

// Decoding: few queries over many keys, where reading keys and values is what takes time, so each is read once. Logits
// of a part of the keys are kept in the workspace; when the parts' stats are joined, a second kernel makes weights of
// them and sums values. A block of 256 threads owns kOwn queries with all heads and walks tiles of 32 keys: in mixes a
// lane is a key; where rows are read kTeam lanes share one, 8 numbers each. Arithmetic is float32 throughout.
namespace motet::cuda::decode {

using general::Buffer, general::kThreads, general::kWarps, plain::Type;

inline constexpr int kKeys = 32, kBatch = 4;  // of a tile; rows that a lane fetches together

/// How many a multiprocessor has registers for at once, which hides the waits of mixes.
template <int kOwn, int kTeam>
inline constexpr int kBlocks = kOwn == 1 && kTeam < 32 ? 3 : 2;

struct Call : general::Call {
  float* logits;  // [B,T,Ha,S], of pairs that are seen
};

/// kEight: keys and values in 8 bits, else in one of the other types.
template <int kOwn, int kTeam, bool kEight>
struct Tile : general::MixedTile<false, kKeys, kOwn> {
  using Base = general::MixedTile<false, kKeys, kOwn>;
  using Base::a, Base::sight, Base::b, Base::own0, Base::loop0, Base::thread, Base::warp, Base::lane, Base::seen,
      Base::hidden, Base::kPairs;
  static constexpr int kTogether = 32 / kTeam, kFetched = kBatch * kTogether;  // rows that a warp reads at once
  const Call& c;
  const Span keys;
  const int row, column;  // of this lane
  Buffer x, w, sums;      // [head][query][key]; [output head][query][column]

  static int64_t bytes(const Call& c, bool outputs) {
    return 4 * (int64_t{kPairs} * (1 + c.ranks + 2 * c.heads) + (outputs ? c.a.output_heads * kOwn * c.a.E : 0));
  }

  MOTET_DEVICE explicit Tile(const Call& call)
      : Base(call.a),
        c(call),
        keys(general::part_of<kKeys>(sight.keys(own0, own0 + kOwn), blockIdx.z, call.parts)),
        row(lane / kTeam),
        column(lane % kTeam * kVector) {
    hidden = {kPairs * 4};
    x = {hidden.at + c.ranks * kPairs * 4};
    w = {x.at + c.heads * kPairs * 4};
    sums = {w.at + c.heads * kPairs * 4};
  }

  MOTET_DEVICE float* logits(int t, int head) const {
    return c.logits + ((static_cast<int64_t>(b) * a.T + t) * a.softmax_heads + head) * a.S;
  }

  /// x[head][query][key] = scale * query . key; 0 where they do not see each other.
  MOTET_DEVICE void scores() {
    if constexpr (kEight) {
      scores_of<Type::int8>();
      block_sync();
      scale(x, a.score_heads, a.k, a.key_of);
    } else {
      if (a.k.type == Type::float32) scores_of<Type::float32>();
      if (a.k.type == Type::bfloat16) scores_of<Type::bfloat16>();
      if (a.k.type == Type::float16) scores_of<Type::float16>();
    }
  }

  /// sums[head][query] += the tile's u[head][query] . values.
  MOTET_DEVICE void values(Buffer u) {
    if constexpr (kEight) {
      scale(u, a.output_heads, a.v, a.value_of);
      block_sync();
      values_of<Type::int8>(u);
    } else {
      if (a.v.type == Type::float32) values_of<Type::float32>(u);
      if (a.v.type == Type::bfloat16) values_of<Type::bfloat16>(u);
      if (a.v.type == Type::float16) values_of<Type::float16>(u);
    }
  }

  /// Weights of the tile in w, from the logits and the stats of all keys.
  MOTET_DEVICE void weights() {
    for (int item = warp; item < a.softmax_heads * kOwn; item += kWarps) {
      const int head = item / kOwn, t = own0 + item % kOwn, pair = item % kOwn * kKeys + lane;
      float p = 0;
      if (seen.get(pair)) {
        const float2 stats = c.stats[(static_cast<int64_t>(b) * a.softmax_heads + head) * a.T + t];
        p = expf(logits(t, head)[loop0 + lane] - stats.x) / stats.y;
      }
      w.set(head * kPairs + pair, p);
    }
    block_sync();
  }

 private:
  // 8 numbers of a row of this lane; of the last key of the walk beyond it, and the first columns beyond the width:
  // no branch keeps one row's fetch from overlapping the next.
  template <Type kType>
  MOTET_DEVICE void fetch(const plain::Operand& rows, int head, int key, int width, float* to) const {
    const int64_t i =
        b * rows.batch_stride + place(key) * rows.row_stride + head * rows.head_stride + (column < width ? column : 0);
    if constexpr (kType == Type::int8) {
      uint32_t words[2];
      read_words<2>(static_cast<const int8_t*>(rows.data) + i, words);
      MOTET_UNROLL
      for (int e = 0; e < kVector; ++e) to[e] = widen_int8(words[e / 4], e % 4);
    } else {
      load_all<kVector>(rows.data, kType, i, to);
    }
  }
  MOTET_DEVICE int place(int key) const { return smaller(loop0 + key, keys.end - 1); }

  // Each number of a pair times what the numbers of its key's row stand for.
  MOTET_DEVICE void scale(Buffer pairs, int heads, const plain::Operand& rows, const uint8_t* of) const {
    const int64_t first = b * rows.scale_batch + place(lane) * rows.scale_row;
    for (int item = warp; item < heads * kOwn; item += kWarps) {
      const int at = item / kOwn * kPairs + item % kOwn * kKeys + lane;
      pairs.set(at, pairs.get(at) * rows.scale[first + of[item / kOwn]]);
    }
  }

  template <Type kType>
  MOTET_DEVICE void scores_of() {
    constexpr int kPieces = kKeys / kFetched;
    for (int item = warp; item < a.score_heads * kPieces; item += kWarps) {
      const int head = item / kPieces, first = item % kPieces * kFetched + row;
      float k[kBatch][kVector];
      MOTET_UNROLL
      for (int n = 0; n < kBatch; ++n) fetch<kType>(a.k, a.key_of[head], first + n * kTogether, a.D, k[n]);
      MOTET_UNROLL
      for (int t = 0; t < kOwn; ++t) {
        float q[kVector] = {};
        if (own0 + t < a.T && column < a.D)
          load_all<kVector>(a.q.data, a.q.type,
                            b * a.q.batch_stride + (own0 + t) * a.q.row_stride + head * a.q.head_stride + column, q);
        MOTET_UNROLL
        for (int n = 0; n < kBatch; ++n) {
          float sum = 0;
          MOTET_UNROLL
          for (int e = 0; e < kVector; ++e) sum = fmaf(q[e], k[n][e], sum);
          MOTET_UNROLL
          for (int step = 1; step < kTeam; step *= 2) sum += shuffle_xor(sum, step);
          const int pair = t * kKeys + first + n * kTogether;
          if (column == 0) x.set(head * kPairs + pair, seen.get(pair) ? sum * a.scale : 0.f);
        }
      }
    }
  }

  template <Type kType>
  MOTET_DEVICE void values_of(Buffer u) {
    for (int head = warp; head < a.output_heads; head += kWarps) {
      float sum[kOwn][kVector] = {};
      for (int first = row; first < kKeys; first += kFetched) {
        float v[kBatch][kVector];
        MOTET_UNROLL
        for (int n = 0; n < kBatch; ++n) fetch<kType>(a.v, a.value_of[head], first + n * kTogether, a.E, v[n]);
        MOTET_UNROLL
        for (int n = 0; n < kBatch; ++n) {
          MOTET_UNROLL
          for (int t = 0; t < kOwn; ++t) {
            const float weight = u.get(head * kPairs + t * kKeys + first + n * kTogether);
            MOTET_UNROLL
            for (int e = 0; e < kVector; ++e) sum[t][e] = fmaf(weight, v[n][e], sum[t][e]);
          }
        }
      }
      MOTET_UNROLL
      for (int t = 0; t < kOwn; ++t) {
        MOTET_UNROLL
        for (int e = 0; e < kVector; ++e) {
          MOTET_UNROLL
          for (int step = kTeam; step < 32; step *= 2) sum[t][e] += shuffle_xor(sum[t][e], step);
        }
        if (row != 0 || column >= a.E) continue;
        MOTET_UNROLL
        for (int e = 0; e < kVector; ++e) {
          const int at = (head * kOwn + t) * a.E + column + e;
          sums.set(at, sums.get(at) + sum[t][e]);
        }
      }
    }
  }
};

/// Logits of this block's queries over its part of the keys, and their stats.
template <int kOwn, int kTeam, bool kEight>
MOTET_KERNEL_BESIDE(kThreads, (kBlocks<kOwn, kTeam>))
keep_logits(const MOTET_PARAMETER Call c) {
  Tile<kOwn, kTeam, kEight> tile(c);
  const int lane = tile.lane,
            items = c.a.softmax_heads * kOwn;  // (head, query): at most 32 of a warp, a lane keeps one
  float top = -INFINITY, sum = 0;
  for (int s = tile.keys.begin; s < tile.keys.end; s += kKeys) {
    if (!tile.start(s)) continue;
    tile.scores();
    block_sync();
    const Buffer logits = tile.mixed(c.a.pre, tile.x, tile.w, 0, c.a.softmax_heads);
    for (int item = tile.warp, mine = 0; item < items; item += kWarps, ++mine) {
      const int head = item / kOwn, pair = item % kOwn * kKeys + lane;
      const bool sees = tile.seen.get(pair);
      const float logit = logits.get(head * tile.kPairs + pair);
      if (sees) tile.logits(tile.own0 + item % kOwn, head)[s + lane] = logit;
      float most = sees ? logit : -INFINITY;
      MOTET_UNROLL
      for (int step = 1; step < 32; step *= 2) most = larger_or_nan(most, shuffle_xor(most, step));
      if (most == -INFINITY) continue;
      float total = sees ? expf(logit - most) : 0;
      MOTET_UNROLL
      for (int step = 1; step < 32; step *= 2) total += shuffle_xor(total, step);
      if (lane == mine) {
        const float both = larger_or_nan(top, most);
        sum = (sum == 0 ? 0 : sum * expf(top - both)) + total * expf(most - both);
        top = both;
      }
    }
  }
  const int item = tile.warp + lane * kWarps, t = tile.own0 + item % kOwn;
  if (item < items && t < c.a.T) keep_stats(c, tile.b, item / kOwn, t, top, sum);
}

/// Outputs of this block's queries under the stats, over its part of the keys.
template <int kOwn, int kTeam, bool kEight>
MOTET_KERNEL_BESIDE(kThreads, (kBlocks<kOwn, kTeam>))
sum_values(const MOTET_PARAMETER Call c) {
  Tile<kOwn, kTeam, kEight> tile(c);
  const plain::Type type = c.parts == 1 ? c.a.q.type : Type::float32;
  const int numbers = c.a.output_heads * kOwn * c.a.E;
  for (int i = tile.thread; i < numbers; i += kThreads) tile.sums.set(i, 0);
  for (int s = tile.keys.begin; s < tile.keys.end; s += kKeys) {
    if (!tile.start(s)) continue;
    tile.weights();
    tile.values(tile.post(tile.w, tile.x, 0, c.a.output_heads));
  }
  block_sync();
  const int64_t rows = static_cast<int64_t>(c.a.B) * c.a.T, first = c.parts == 1 ? 0 : blockIdx.z * rows;
  for (int i = tile.thread; i < numbers; i += kThreads) {
    const int head = i / c.a.E / kOwn, t = tile.own0 + i / c.a.E % kOwn;
    if (t < c.a.T)
      store(c.parts == 1 ? c.out : c.partial_out, type,
            ((first + static_cast<int64_t>(tile.b) * c.a.T + t) * c.a.output_heads + head) * c.a.E + i % c.a.E,
            tile.sums.get(i));
  }
}

}  // namespace motet::cuda::decode
