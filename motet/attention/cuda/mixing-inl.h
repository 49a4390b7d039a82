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
    for (int item = thread; item < (m.query_rank + m.key_rank) * kPairs; item += kThreads) {
      const int r = item / kPairs, pair = item % kPairs;
      float sum = 0;
      if (seen.get(pair)) {
        const bool by_key = r >= m.query_rank;
        const Row with = row(m, (by_key ? kKeyDown : kQueryDown) + kBack, pair);
        const int64_t at = with.at + (by_key ? r - m.query_rank : r) * heads;
        for (int h = 0; h < heads; ++h)
          sum = fmaf(from.get(h * kPairs + pair), load(with.data, with.type, at + h), sum);
      }
      (kBack ? back : hidden).set(item, sum);
    }
  }

  /// to = mix(from), or with kBack mix^T(from), heads [first, end) of it; returns where it is: `from` itself when the
  /// mix does nothing.
  template <bool kBack = false>
  MOTET_DEVICE Buffer mixed(const Mix& m, Buffer from, Buffer to, int first, int end) {
    if (!m.any) return from;
    hide<kBack>(m, from);
    block_sync();
    for (int item = thread; item < (end - first) * kPairs; item += kThreads) {
      const int h = first + item / kPairs, pair = item % kPairs;
      float sum = 0;
      if (seen.get(pair)) {
        if (m.identity) sum = from.get(h * kPairs + pair);
        for (const int part : {kWeight, kQueryFull, kKeyFull}) {
          if (!m.part[part].data) continue;
          const Row full = row(m, part, pair);
          for (int n = 0; n < (kBack ? m.out : m.in); ++n)
            sum = fmaf(from.get(n * kPairs + pair),
                       load(full.data, full.type, full.at + (kBack ? h * m.out + n : n * m.out + h)), sum);
        }
        for (const int gate : {kQueryGate, kKeyGate}) {
          if (!m.part[gate].data) continue;
          const Row at = row(m, gate, pair);
          sum = fmaf(from.get(h * kPairs + pair), load(at.data, at.type, at.at + h), sum);
        }
        sum =
            kBack ? raised(m, back, kQueryDown, pair, m.in, h, sum) : raised(m, hidden, kQueryUp, pair, m.out, h, sum);
      }
      to.set(h * kPairs + pair, sum);
    }
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
    return {t.data, t.type, b * t.batch_stride + static_cast<int64_t>(at) * part_numbers(m, part)};
  }
  // sum + sum_r ranks[r] part[r][head], over the ranks of the query and then of the key; part: kQueryUp or kQueryDown.
  MOTET_DEVICE float raised(const Mix& m, Buffer ranks, int part, int pair, int heads, int head, float sum) const {
    for (int side = 0; side < 2; ++side) {
      const int rank = side ? m.key_rank : m.query_rank;
      if (!rank) continue;
      const Row from = row(m, side ? part + kKeyDown - kQueryDown : part, pair);
      for (int r = 0; r < rank; ++r)
        sum = fmaf(ranks.get((r + (side ? m.query_rank : 0)) * kPairs + pair),
                   load(from.data, from.type, from.at + r * heads + head), sum);
    }
    return sum;
  }
};

}  // namespace motet::cuda::general
