#pragma once
#include "motet/kernels/cuda/team-inl.h"

// Rotation of heads and SwiGLU's product: a thread a piece of a row.
namespace motet::cuda::step {

struct Turn {
  HeadRotation r;
  void* y;
  int turning, pieces, count;  // pieces of a head that turn, all of them, all of all heads
};

/// A piece is kCount pairs (interleaved: kCount numbers, or one pair), or kCount numbers behind the pairs.
template <bool kInterleaved, int kCount>
MOTET_KERNEL(kThreads)
turn_heads(const MOTET_PARAMETER Turn c) {
  const int item = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (item >= c.count) return;
  const HeadRotation& r = c.r;
  const int piece = item % c.pieces, head = item / c.pieces, T = static_cast<int>(r.T), H = static_cast<int>(r.H);
  const int row = head / H, b = row / T, t = row % T, P = static_cast<int>(r.pairs);
  const int64_t from = b * r.batch_stride + t * r.row_stride + head % H * r.head_stride, to = head * r.D;
  if (piece >= c.turning) {
    const int at = 2 * P + (piece - c.turning) * kCount;
    float x[kCount];
    load_all<kCount>(r.x, r.type, from + at, x);
    store_all<kCount>(c.y, r.type, to + at, x);
    return;
  }
  constexpr int kNumbers = kInterleaved && kCount > 1 ? kCount : 2 * kCount, kPairs = kNumbers / 2;
  constexpr int kStep = kInterleaved ? 2 : 1, kOther = kInterleaved ? 1 : kPairs;  // from pair to pair, from a to b
  float x[kNumbers], cos[kPairs], sin[kPairs];
  const int64_t table = b * r.table_stride + static_cast<int64_t>(t) * P + piece * kPairs;
  if constexpr (kPairs == 1) {
    cos[0] = r.cos[table], sin[0] = r.sin[table];
  } else {
    MOTET_UNROLL
    for (int j = 0; j < kPairs; j += 4)
      read_vector(r.cos + table + j, cos + j), read_vector(r.sin + table + j, sin + j);
  }
  const int place[2] = {piece * (kInterleaved ? kNumbers : kPairs),
                        kInterleaved ? piece * kNumbers + kCount : P + piece * kPairs};
  constexpr int kLoads = kNumbers / kCount;
  MOTET_UNROLL
  for (int i = 0; i < kLoads; ++i) load_all<kCount>(r.x, r.type, from + place[i], x + i * kCount);
  MOTET_UNROLL
  for (int j = 0; j < kPairs; ++j) {
    const float a = x[j * kStep], other = x[j * kStep + kOther], turn = r.back ? -sin[j] : sin[j];
    x[j * kStep] = a * cos[j] - other * turn;
    x[j * kStep + kOther] = other * cos[j] + a * turn;
  }
  MOTET_UNROLL
  for (int i = 0; i < kLoads; ++i) store_all<kCount>(c.y, r.type, to + place[i], x + i * kCount);
}

struct Gated {
  SiluTimes s;
  void* y;
  const void* dy;
  SiluTimesGradients to;
  int pieces, count;  // of a row, of all
};

struct GatedPlace {
  int64_t gate, up, out;
};
template <int kCount>
MOTET_DEVICE GatedPlace place_of(const Gated& c, int item) {
  const int64_t row = item / c.pieces, at = item % c.pieces * kCount;
  return {row * c.s.gate.stride + at, row * c.s.up.stride + at, row * c.s.columns + at};
}

template <int kCount>
MOTET_KERNEL(kThreads)
gated(const MOTET_PARAMETER Gated c) {
  const int item = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (item >= c.count) return;
  const GatedPlace at = place_of<kCount>(c, item);
  float gate[kCount], up[kCount];
  load_all<kCount>(c.s.gate.data, c.s.gate.type, at.gate, gate);
  load_all<kCount>(c.s.up.data, c.s.up.type, at.up, up);
  MOTET_UNROLL
  for (int j = 0; j < kCount; ++j) up[j] *= gate[j] / (1 + expf(-gate[j]));
  store_all<kCount>(c.y, c.s.out_type, at.out, up);
}

template <int kCount>
MOTET_KERNEL(kThreads)
gated_back(const MOTET_PARAMETER Gated c) {
  const int item = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (item >= c.count) return;
  const GatedPlace at = place_of<kCount>(c, item);
  float gate[kCount], up[kCount], dy[kCount];
  load_all<kCount>(c.s.gate.data, c.s.gate.type, at.gate, gate);
  load_all<kCount>(c.s.up.data, c.s.up.type, at.up, up);
  load_all<kCount>(c.dy, c.s.out_type, at.out, dy);
  MOTET_UNROLL
  for (int j = 0; j < kCount; ++j) {
    const float share = 1 / (1 + expf(-gate[j])), dsilu = dy[j] * up[j];
    up[j] = dy[j] * (gate[j] * share);
    gate[j] = dsilu * (share * (1 + gate[j] * (1 - share)));
  }
  if (c.to.gate) store_all<kCount>(c.to.gate, c.s.gate.type, at.out, gate);
  if (c.to.up) store_all<kCount>(c.to.up, c.s.up.type, at.out, up);
}

// ---- the host's half -----------------------------------------------------------------------------------------------

template <bool kInterleaved, int kCount>
void put_turn(Launches& to, Turn c) {
  const int64_t turning = kInterleaved && kCount > 1 ? 2 * c.r.pairs : c.r.pairs;
  c.turning = static_cast<int>(turning / kCount);
  c.pieces = c.turning + static_cast<int>((c.r.D - 2 * c.r.pairs) / kCount);
  c.count = static_cast<int>(c.r.B * c.r.T * c.r.H * c.pieces);
  to.flat(turn_heads<kInterleaved, kCount>, c.count, kThreads, c);
}

inline const char* rotate(const HeadRotation& r, void* y, const Runtime& run) {
  Launches to(run.stream);
  bool vectors = holds_vectors(r.x) && holds_vectors(y) && holds_vectors(r.cos) && holds_vectors(r.sin);
  for (const int64_t size : {r.D, r.batch_stride, r.row_stride, r.head_stride, 2 * r.pairs})
    vectors &= size % kVector == 0;
  const Turn c{r, y};
  if (r.interleaved)
    vectors ? put_turn<true, kVector>(to, c) : put_turn<true, 1>(to, c);
  else
    vectors&& r.pairs % kVector == 0 ? put_turn<false, kVector>(to, c) : put_turn<false, 1>(to, c);
  return to.error();
}

inline const char* put_gated(Gated c, bool back, const Runtime& run) {
  SiluTimes& s = c.s;
  if (s.rows == 1 || (s.gate.stride == s.columns && s.up.stride == s.columns))
    s.columns *= s.rows, s.rows = 1, s.gate.stride = s.up.stride = s.columns;  // one row without gaps
  const bool vectors = vector_rows(s.columns, {s.gate, s.up, {c.y}, {c.dy}, {c.to.gate}, {c.to.up}});
  c.pieces = static_cast<int>(s.columns / (vectors ? kVector : 1));
  c.count = static_cast<int>(s.rows * c.pieces);
  Launches to(run.stream);
  if (vectors)
    to.flat(back ? gated_back<kVector> : gated<kVector>, c.count, kThreads, c);
  else
    to.flat(back ? gated_back<1> : gated<1>, c.count, kThreads, c);
  return to.error();
}

inline const char* silu_times(const SiluTimes& s, void* y, const Runtime& run) { return put_gated({s, y}, false, run); }
inline const char* silu_times_backward(const SiluTimes& s, const void* dy, const SiluTimesGradients& to,
                                       const Runtime& run) {
  return put_gated({s, nullptr, dy, to}, true, run);
}

}  // namespace motet::cuda::step
