#pragma once
#include "motet/kernels/cuda/team-inl.h"

// What DCMHA makes of its generator's products, one kernel in place of permutations, slices, a norm and tanh. A team
// takes N numbers: a row down or up of a branch's maps, or its gates.
namespace motet::cuda::step {

struct SplitCall {
  DcmhaSplit s;
  DcmhaParts parts;  // backward: their gradients
  DcmhaGradients to;
  int each, count;  // rows of N numbers of a branch at one token, all of all
};

/// Which N numbers a team takes.
struct SplitPlace {
  int branch, kind;  // 0 down, 1 up, 2 gate
  int64_t read;      // where they lie in maps or gates
  int64_t made;      // where in the part
};

MOTET_DEVICE SplitPlace split_place(const SplitCall& c, int item) {
  const DcmhaSplit& s = c.s;
  const int rank = static_cast<int>(s.rank), heads = static_cast<int>(s.heads), which = item % c.each;
  const int64_t at = item / c.each, branch = at / s.rows, row = at % s.rows;
  const int b = static_cast<int>(branch);
  if (!s.maps || which == 2 * rank) return {b, 2, row * s.gates.stride + branch * heads, row * heads};
  return {b, which / rank, (at * 2 * rank + which) * heads, (row * rank + which % rank) * heads};
}

MOTET_DEVICE void* part_of(const SplitCall& c, const SplitPlace& at) {
  return (at.kind == 2 ? c.parts.gate : at.kind == 0 ? c.parts.down : c.parts.up)[at.branch];
}

template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
split_forward(const MOTET_PARAMETER SplitCall c) {
  const Team<kLanes> team;
  const DcmhaSplit& s = c.s;
  const int item = static_cast<int>(blockIdx.x) * team.kTeams + team.index, heads = static_cast<int>(s.heads);
  const bool mine = item < c.count;
  const SplitPlace at = split_place(c, mine ? item : 0);
  const bool gate = at.kind == 2, down = at.kind == 0;
  const void* const from = gate ? s.gates.data : s.maps;
  const NumberType type = gate ? s.gates.type : s.maps_type;
  float x[kCount], squares = 0;
  for (int i = team.lane * kCount; mine && down && i < heads; i += kLanes * kCount) {
    load_all<kCount>(from, type, at.read + i, x);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) squares = fmaf(x[j], x[j], squares);
  }
  const float inverse = 1 / sqrtf(team.sum(squares) / static_cast<float>(heads) + s.eps);
  if (!mine) return;
  void* const to = part_of(c, at);
  for (int i = team.lane * kCount; i < heads; i += kLanes * kCount) {
    load_all<kCount>(from, type, at.read + i, x);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) x[j] = gate ? tanhf(x[j]) : down ? x[j] * inverse : x[j];
    store_all<kCount>(to, type, at.made + i, x);
  }
}

template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
split_backward(const MOTET_PARAMETER SplitCall c) {
  const Team<kLanes> team;
  const DcmhaSplit& s = c.s;
  const int item = static_cast<int>(blockIdx.x) * team.kTeams + team.index, heads = static_cast<int>(s.heads);
  const bool mine = item < c.count;
  const SplitPlace at = split_place(c, mine ? item : 0);
  const bool gate = at.kind == 2, down = at.kind == 0;
  const NumberType type = gate ? s.gates.type : s.maps_type;
  const void *const from = gate ? s.gates.data : s.maps, *const given = part_of(c, at);
  float x[kCount] = {}, d[kCount] = {}, squares = 0, along = 0;
  for (int i = team.lane * kCount; mine && down && given && i < heads; i += kLanes * kCount) {
    load_all<kCount>(from, type, at.read + i, x);
    load_all<kCount>(given, type, at.made + i, d);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) squares = fmaf(x[j], x[j], squares), along = fmaf(d[j], x[j], along);
  }
  const float count = static_cast<float>(heads), inverse = 1 / sqrtf(team.sum(squares) / count + s.eps);
  along = team.sum(along) * inverse / count;
  void* const to = gate ? c.to.gates : c.to.maps;
  if (!mine || !to) return;
  // Gradients lie as maps do; gates' without the gaps.
  const int64_t row = item / c.each % s.rows, of_gates = (row * s.branches + at.branch) * heads;
  for (int i = team.lane * kCount; i < heads; i += kLanes * kCount) {
    if (given) load_all<kCount>(given, type, at.made + i, d);
    if (given && at.kind != 1) load_all<kCount>(from, type, at.read + i, x);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const float made = gate ? tanhf(x[j]) : 0.f;
      if (gate) d[j] *= 1 - made * made;
      if (down) d[j] = fmaf(-(x[j] * inverse), along, d[j]) * inverse;
    }
    store_all<kCount>(to, type, (gate ? of_gates : at.read) + i, d);
  }
}

// ---- the host's half -----------------------------------------------------------------------------------------------

inline const char* put_split(SplitCall c, bool back, const Runtime& run) {
  constexpr int kFew = 4;  // heads are few: 16 of them are two vectors
  const DcmhaSplit& s = c.s;
  c.each = static_cast<int>((s.maps ? 2 * s.rank : 0) + (s.gates.data ? 1 : 0));
  c.count = static_cast<int>(s.branches * s.rows * c.each);
  bool vectors = vector_rows(s.heads, {{s.maps}, s.gates, {c.to.maps}, {c.to.gates}});
  for (int i = 0; i < kMaxBranches; ++i)
    for (const void* data : {c.parts.down[i], c.parts.up[i], c.parts.gate[i]}) vectors &= holds_vectors(data);
  Launches to(run.stream);
  const auto put = [&](auto kernel) { to.run(kernel, blocks_of(c.count, Team<kFew>::kTeams), 1, kThreads, 0, c); };
  if (vectors)
    put(back ? split_backward<kFew, kVector> : split_forward<kFew, kVector>);
  else
    put(back ? split_backward<kFew, 1> : split_forward<kFew, 1>);
  return to.error();
}

inline const char* dcmha_split(const DcmhaSplit& s, const DcmhaParts& parts, const Runtime& run) {
  return put_split({s, parts}, false, run);
}
inline const char* dcmha_split_backward(const DcmhaSplit& s, const DcmhaParts& gradients, const DcmhaGradients& to,
                                        const Runtime& run) {
  return put_split({s, gradients, to}, true, run);
}

}  // namespace motet::cuda::step
