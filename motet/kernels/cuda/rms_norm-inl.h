#pragma once
#include "motet/kernels/cuda/team-inl.h"

// RMS norm: a row is read twice, the second time from the cache.
namespace motet::cuda::step {

struct RmsForward {
  RmsNorm n;
  void* y;
  float* inverse;
};

template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
rms_forward(const MOTET_PARAMETER RmsForward c) {
  const Team<kLanes> team;
  const RmsNorm& n = c.n;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.kTeams + team.index;
  const bool mine = row < n.rows;
  const int columns = static_cast<int>(n.columns);
  float x[kCount], squares = 0;
  for (int i = team.lane * kCount; mine && i < columns; i += kLanes * kCount) {
    load_all<kCount>(n.x.data, n.x.type, row * n.x.stride + i, x);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) squares = fmaf(x[j], x[j], squares);
  }
  const float inverse = 1 / sqrtf(team.sum(squares) / static_cast<float>(columns) + n.eps);
  if (!mine) return;
  if (team.lane == 0) c.inverse[row] = inverse;
  for (int i = team.lane * kCount; i < columns; i += kLanes * kCount) {
    load_all<kCount>(n.x.data, n.x.type, row * n.x.stride + i, x);
    float w[kCount];
    if (n.weight) load_all<kCount>(n.weight, n.weight_type, i, w);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) {
      x[j] = rounded(x[j] * inverse, n.x.type);
      if (n.weight) x[j] *= w[j];
    }
    store_all<kCount>(c.y, n.out_type, row * columns + i, x);
  }
}

struct RmsBackward {
  RmsNorm n;
  const float* inverse;
  const void* dy;
  void* dx;
  float* partial;  // [blocks, columns]: the gradient of the weight of each block's rows; null: not wanted
  int64_t each;    // rows of a block
};

/// A block sums the weight's gradient of its rows in shared memory: number j of the kCount of piece p at
/// [team][j][p], which one thread alone adds to.
template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
rms_backward(const MOTET_PARAMETER RmsBackward c) {
  const Team<kLanes> team;
  const RmsNorm& n = c.n;
  const int columns = static_cast<int>(n.columns), pieces = columns / kCount;
  const int64_t begin = blockIdx.x * c.each, end = begin + c.each < n.rows ? begin + c.each : n.rows;
  const Shared<float> sums{kTeamBytes};
  const int own = team.index * columns;
  for (int piece = team.lane; c.partial && piece < pieces; piece += kLanes)
    for (int j = 0; j < kCount; ++j) sums.set(own + j * pieces + piece, 0);
  for (int64_t first = begin; first < end; first += team.kTeams) {
    const int64_t row = first + team.index;
    const bool mine = row < end;
    const float inverse = mine ? c.inverse[row] : 0.f;
    float normed[kCount], g[kCount], w[kCount];
    const auto read = [&](int piece) {
      load_all<kCount>(n.x.data, n.x.type, row * n.x.stride + piece * kCount, normed);
      load_all<kCount>(c.dy, n.out_type, row * columns + piece * kCount, g);
      if (n.weight) load_all<kCount>(n.weight, n.weight_type, piece * kCount, w);
      MOTET_UNROLL
      for (int j = 0; j < kCount; ++j) normed[j] *= inverse;
    };
    float along = 0;
    for (int piece = team.lane; mine && piece < pieces; piece += kLanes) {
      read(piece);
      MOTET_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const int at = own + j * pieces + piece;
        if (c.partial) sums.set(at, fmaf(g[j], normed[j], sums.get(at)));
        along = fmaf(n.weight ? g[j] * w[j] : g[j], normed[j], along);
      }
    }
    along = team.sum(along) / static_cast<float>(columns);
    for (int piece = team.lane; mine && c.dx && piece < pieces; piece += kLanes) {
      read(piece);
      MOTET_UNROLL
      for (int j = 0; j < kCount; ++j) g[j] = fmaf(-normed[j], along, n.weight ? g[j] * w[j] : g[j]) * inverse;
      store_all<kCount>(c.dx, n.x.type, row * columns + piece * kCount, g);
    }
  }
  if (!c.partial) return;
  block_sync();
  for (int at = threadIdx.x; at < columns; at += kThreads) {
    float sum = 0;
    for (int t = 0; t < team.kTeams; ++t) sum += sums.get(t * columns + at);
    c.partial[static_cast<int64_t>(blockIdx.x) * columns + at % pieces * kCount + at / pieces] = sum;
  }
}

struct SlicesJoined {
  const float* partial;  // [slices, columns]
  int slices, columns;
  void* to;
  NumberType type;
};

/// Sums of each column over the slices, 32 columns a block: a warp takes every kWarps-th slice.
MOTET_KERNEL(kThreads)
join_slices(const MOTET_PARAMETER SlicesJoined c) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = blockIdx.x * 32 + lane;
  const Shared<float> sums{0};
  float sum = 0;
  for (int s = warp; column < c.columns && s < c.slices; s += kWarps)
    sum += c.partial[static_cast<int64_t>(s) * c.columns + column];
  sums.set(threadIdx.x, sum);
  block_sync();
  if (warp > 0 || column >= c.columns) return;
  for (int w = 1; w < kWarps; ++w) sum += sums.get(w * 32 + lane);
  store(c.to, c.type, column, sum);
}

// ---- the host's half -----------------------------------------------------------------------------------------------

constexpr int64_t kMostSlices = 512;  // of the rows, for the weight's gradient: enough for every GPU, few to join

inline int64_t rows_of_slice(const RmsNorm& n) {
  const int64_t teams = kThreads / lanes_of(n.columns);
  return blocks_of(blocks_of(n.rows, teams), kMostSlices) * teams;
}

inline int64_t rms_norm_workspace(const RmsNorm& n) {
  return blocks_of(n.rows, rows_of_slice(n)) * n.columns * static_cast<int64_t>(sizeof(float));
}

inline const char* rms_norm(const RmsNorm& n, void* y, float* inverse, const Runtime& run) {
  Launches to(run.stream);
  with_team(lanes_of(n.columns), vector_rows(n.columns, {n.x, {n.weight}, {y}}), [&](auto lanes, auto count) {
    constexpr int kLanes = decltype(lanes)::value, kCount = decltype(count)::value;
    to.run(rms_forward<kLanes, kCount>, blocks_of(n.rows, Team<kLanes>::kTeams), 1, kThreads, kTeamBytes,
           RmsForward{n, y, inverse});
  });
  return to.error();
}

inline const char* rms_norm_backward(const RmsNorm& n, const float* inverse, const void* dy, const RmsNormGradients& to,
                                     const Runtime& run) {
  Launches launches(run.stream);
  RmsBackward c{n, inverse, dy, to.x, to.weight ? static_cast<float*>(run.workspace) : nullptr};
  with_team(lanes_of(n.columns), vector_rows(n.columns, {n.x, {n.weight}, {dy}, {to.x}}), [&](auto lanes, auto count) {
    constexpr int kLanes = decltype(lanes)::value, kCount = decltype(count)::value, kTeams = Team<kLanes>::kTeams;
    c.each = to.weight ? rows_of_slice(n) : kTeams;
    launches.run(rms_backward<kLanes, kCount>, blocks_of(n.rows, c.each), 1, kThreads,
                 kTeamBytes + (to.weight ? kTeams * n.columns * static_cast<int64_t>(sizeof(float)) : 0), c);
  });
  if (to.weight)
    launches.run(join_slices, blocks_of(n.columns, 32), 1, kThreads, kThreads * sizeof(float),
                 SlicesJoined{c.partial, static_cast<int>(blocks_of(n.rows, c.each)), static_cast<int>(n.columns),
                              to.weight, n.weight_type});
  return launches.error();
}

}  // namespace motet::cuda::step
