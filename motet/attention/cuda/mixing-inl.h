#pragma once
#include "motet/attention/cuda/sight.h"
#include "motet/cuda/numbers.h"

// Head mixes of a tile in float32, any parts and ranks, as the general and the decode kernels compute them.
namespace motet::cuda::general {

inline constexpr int kThreads = 256, kWarps = 8;

using cuda::load;
MOTET_DEVICE float load(const plain::Operand& x, int b, int row, int head, int i) {
  return load(x.data, x.type, b * x.batch_stride + row * x.row_stride + head * x.head_stride + i);
}

MOTET_DEVICE int part_numbers(const Mix& m, int part) {
  switch (part) {
    case kQueryDown:
      return m.query_rank * m.in;
    case kQueryUp:
      return m.query_rank * m.out;
    case kKeyDown:
      return m.key_rank * m.in;
    case kKeyUp:
      return m.key_rank * m.out;
    case kQueryGate:
    case kKeyGate:
      return m.out;
    default:
      return m.in * m.out;
  }
}

using Buffer = Shared<float>;  // [head][own][loop], or [rank][own][loop]

/// The tiles of `span` that part `part` of `parts` walks.
template <int kLoop>
MOTET_DEVICE Span part_of(Span span, int part, int parts) {
  const int tiles = (span.end - span.begin + kLoop - 1) / kLoop, each = (tiles + parts - 1) / parts * kLoop;
  const int begin = span.begin + part * each;
  return {begin, smaller(begin + each, span.end)};
}

/// Pairs of kOwn rows that a block owns (queries, or kOwnKeys) with kLoop rows of the other side: which see each other,
/// and what mixes make of numbers that they have for each head.
template <bool kByKey, int kLoopRows, int kOwnRows>
struct MixedTile {
  static constexpr bool kOwnKeys = kByKey;
  static constexpr int kOwn = kOwnRows, kLoop = kLoopRows, kPairs = kOwn * kLoop;
  const Args& a;
  const Sight sight;
  const int b, own0, thread, warp, lane;
  /// In mixes a thread takes one pair, whose heads it shares with the other groups, kMost of them at once.
  static constexpr int kGroups = kThreads / kPairs;
  static constexpr int kMost = kPairs > 32 ? kVector : 1;  // decoding has no registers for vectors
  static_assert(kGroups * kPairs == kThreads, "a thread has one pair");
  int loop0 = 0;
  Shared<uint32_t> seen;  // [own][loop], at the beginning of shared memory
  Buffer hidden, back;    // set by who lays out the memory

  /// Blocks take rows of all sequences from the last to the first: under causality the last queries have the longest
  /// walks, the first keys have.
  MOTET_DEVICE explicit MixedTile(const Args& args)
      : a(args),
        sight(args, blockIdx.x % args.B),
        b(blockIdx.x % args.B),
        own0((kOwnKeys ? blockIdx.x / args.B : gridDim.x / args.B - 1 - blockIdx.x / args.B) * kOwn),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        seen{0} {}

  MOTET_DEVICE int mine() const { return static_cast<int>(threadIdx.x) % kPairs; }
  MOTET_DEVICE int group() const { return static_cast<int>(threadIdx.x) / kPairs; }
  MOTET_DEVICE int own(int pair) const { return own0 + pair / kLoop; }
  MOTET_DEVICE int loop(int pair) const { return loop0 + pair % kLoop; }
  MOTET_DEVICE int query(int pair) const { return kOwnKeys ? loop(pair) : own(pair); }
  MOTET_DEVICE int key(int pair) const { return kOwnKeys ? own(pair) : loop(pair); }

  /// The tile of loop rows from `first` on; false, for all threads, where nothing of it is seen.
  MOTET_DEVICE bool start(int first) {
    block_sync();  // nobody reads the tile before any more
    loop0 = first;
    bool any = false;
    for (int pair = thread; pair < kPairs; pair += kThreads) {
      const bool sees = sight.sees(query(pair), key(pair));
      seen.set(pair, sees);
      any |= sees;
    }
    return block_count(any) > 0;
  }

  /// What goes through the low rank of a mix, query ranks first: hidden[r] = sum_n in[n] down[r][n]; with kBack
  /// back[r] = sum_m from[m] up[r][m].
  template <bool kBack = false>
  MOTET_DEVICE void hide(const Mix& m, Buffer from) {
    const int heads = kBack ? m.out : m.in;
    for (int r = group(); r < m.query_rank + m.key_rank; r += kGroups) {
      float sum = 0;
      if (seen.get(mine())) {
        const bool by_key = r >= m.query_rank;
        const Row with = row(m, (by_key ? kKeyDown : kQueryDown) + kBack, mine());
        const int64_t at = with.at + (by_key ? r - m.query_rank : r) * heads;
        sum = m.in_vectors ? product<kMost>(with, at, from, heads) : product<1>(with, at, from, heads);
      }
      (kBack ? back : hidden).set(r * kPairs + mine(), sum);
    }
  }

  /// to = mix(from), or with kBack mix^T(from), heads [first, end) of it; returns where it is: `from` itself when the
  /// mix does nothing.
  template <bool kBack = false>
  MOTET_DEVICE Buffer mixed(const Mix& m, Buffer from, Buffer to, int first, int end) {
    if (!m.any) return from;
    hide<kBack>(m, from);
    block_sync();
    if (m.in_vectors && first % kMost == 0 && end % kMost == 0)
      mix_heads<kMost, kBack>(m, from, to, first, end);
    else
      mix_heads<1, kBack>(m, from, to, first, end);
    block_sync();
    return to;
  }

  MOTET_DEVICE float lambda(int pair, int head) const {
    const plain::Pairs& p = a.pairs;
    return p.lambda[b * p.batch_stride + query(pair) * p.row_stride + head * p.head_stride];
  }
  /// The post mix, pairs or not.
  MOTET_DEVICE Buffer post(Buffer in, Buffer out, int first, int end) {
    if (!a.pairs.lambda) return mixed(a.post, in, out, first, end);
    for (int item = thread; item < (end - first) * kPairs; item += kThreads) {
      const int h = first + item / kPairs, pair = item % kPairs;
      float u = 0;
      if (seen.get(pair)) u = in.get(2 * h * kPairs + pair) - lambda(pair, h) * in.get((2 * h + 1) * kPairs + pair);
      out.set(h * kPairs + pair, u);
    }
    block_sync();
    return out;
  }
  MOTET_DEVICE Buffer post_back(Buffer from, Buffer to) {
    if (!a.pairs.lambda) return mixed<true>(a.post, from, to, 0, a.softmax_heads);
    for (int item = thread; item < a.output_heads * kPairs; item += kThreads) {
      const int h = item / kPairs, pair = item % kPairs;
      const float d = from.get(item);
      to.set(2 * h * kPairs + pair, d);
      to.set((2 * h + 1) * kPairs + pair, seen.get(pair) ? -lambda(pair, h) * d : 0.f);
    }
    block_sync();
    return to;
  }

 private:
  struct Row {
    const void* data;
    plain::Type type;
    int64_t at;
  };
  // The numbers of a part at the query or key of a pair.
  MOTET_DEVICE Row row(const Mix& m, int part, int pair) const {
    const plain::MixTensor& t = m.part[part];
    if (part == kWeight) return {t.data, t.type, 0};
    const int at = part >= kKeyDown ? key(pair) : query(pair);
    return {t.data, t.type, b * t.batch_stride + at * t.row_stride};
  }
  // sum_i from[i] row[i] over the heads, kCount of a row at once.
  template <int kCount>
  MOTET_DEVICE float product(const Row& row, int64_t at, Buffer from, int heads) const {
    float sum = 0;
    for (int h = 0; h < heads; h += kCount) {
      float x[kCount];
      load_all<kCount>(row.data, row.type, at + h, x);
      MOTET_UNROLL
      for (int i = 0; i < kCount; ++i) sum = fmaf(from.get((h + i) * kPairs + mine()), x[i], sum);
    }
    return sum;
  }

  // Heads [first, end) of the mix at this thread's pair, kCount at a time; its group takes every kGroups-th of those.
  // The parts of a head are added in one order, whatever kCount.
  template <int kCount, bool kBack>
  MOTET_DEVICE void mix_heads(const Mix& m, Buffer from, Buffer to, int first, int end) {
    const bool sees = seen.get(mine());
    for (int h = first + group() * kCount; h < end; h += kGroups * kCount) {
      float sum[kCount] = {};
      if (sees) {
        if (m.identity) {
          MOTET_UNROLL
          for (int i = 0; i < kCount; ++i) sum[i] = from.get((h + i) * kPairs + mine());
        }
        for (const int part : {kWeight, kQueryFull, kKeyFull})
          if (m.part[part].data)
            add_full<kCount, kBack>(sum, row(m, part, mine()), m.out, kBack ? m.out : m.in, from, h);
        for (const int gate : {kQueryGate, kKeyGate}) {
          if (!m.part[gate].data) continue;
          const Row at = row(m, gate, mine());
          float x[kCount];
          load_all<kCount>(at.data, at.type, at.at + h, x);
          MOTET_UNROLL
          for (int i = 0; i < kCount; ++i) sum[i] = fmaf(from.get((h + i) * kPairs + mine()), x[i], sum[i]);
        }
        for (int side = 0; side < 2; ++side) {
          const int rank = side ? m.key_rank : m.query_rank, heads = kBack ? m.in : m.out;
          if (!rank) continue;
          const Row up = row(m, (side ? kKeyUp : kQueryUp) - kBack, mine());
          for (int r = 0; r < rank; ++r) {
            const float low = (kBack ? back : hidden).get((r + (side ? m.query_rank : 0)) * kPairs + mine());
            float x[kCount];
            load_all<kCount>(up.data, up.type, up.at + r * heads + h, x);
            MOTET_UNROLL
            for (int i = 0; i < kCount; ++i) sum[i] = fmaf(low, x[i], sum[i]);
          }
        }
      }
      MOTET_UNROLL
      for (int i = 0; i < kCount; ++i) to.set((h + i) * kPairs + mine(), sum[i]);
    }
  }

  // sum[i] += sum_n from[n] full[n][h + i], or with kBack from[n] full[h + i][n]; full has `columns` in a row.
  template <int kCount, bool kBack>
  MOTET_DEVICE void add_full(float* sum, const Row& full, int columns, int heads, Buffer from, int h) const {
    for (int n = 0; n < heads; n += kBack ? kCount : 1) {
      float x[kCount];
      if constexpr (kBack) {
        float in[kCount];
        MOTET_UNROLL
        for (int j = 0; j < kCount; ++j) in[j] = from.get((n + j) * kPairs + mine());
        MOTET_UNROLL
        for (int i = 0; i < kCount; ++i) {
          load_all<kCount>(full.data, full.type, full.at + (h + i) * columns + n, x);
          MOTET_UNROLL
          for (int j = 0; j < kCount; ++j) sum[i] = fmaf(in[j], x[j], sum[i]);
        }
      } else {
        const float in = from.get(n * kPairs + mine());
        load_all<kCount>(full.data, full.type, full.at + n * columns + h, x);
        MOTET_UNROLL
        for (int i = 0; i < kCount; ++i) sum[i] = fmaf(in, x[i], sum[i]);
      }
    }
  }
};

}  // namespace motet::cuda::general
