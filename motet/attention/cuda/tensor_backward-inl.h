#pragma once
#include "motet/attention/cuda/tensor-inl.h"

// Backward of the tensor kernels, for calls with a mix: row sums of P dP, then of queries (and, with kOwnKeys, of keys)
// the gradient of the rows and, for each own row and mix, that of its 16x16 matrix, which tensor_pack-inl.h takes
// apart. Who owns a row alone adds to it. dV is weigh (tensor_forward-inl.h) with kOwnKeys. What is summed there is
// 2^kGradientLift times as large, as weights are, and dout_scale times.
namespace motet::cuda::tensor {

inline constexpr int kRowSumRows = 32,
                     kRowSumThreads = 256;  // 8 warps: two heads of the products, four rows of the mixers
inline constexpr int kGradientRows = 16, kGradientThreads = 384;  // 4 mixer and 8 product warps

struct RowSumMemory {
  static constexpr int kScores = kRowSumRows * kRowBytes, kLoopPart = 2 * kLoopMixBytes;
  static constexpr uint32_t tiles = 0, values = tiles + 2 * kTileBytes, scores = values + kTileBytes,
                            grads = scores + 2 * kScores, loop_mix = grads + kScores, lse = loop_mix + 2 * kLoopPart,
                            matrices = lse + kRowSumRows * kHeads * 4,
                            barrier = matrices + 2 * kRowSumRows * kMatrixBytes, bytes = barrier + 16;
};
struct GradientMemory {
  static constexpr int kScores = kGradientRows * kRowBytes, kLoopPart = 2 * kLoopMixBytes + 2 * kStatsBytes;
  static constexpr uint32_t tiles = 0, values = tiles + 3 * kTileBytes, scores = values + 2 * kTileBytes,
                            grads = scores + 2 * kScores, loop_mix = grads + 2 * kScores,
                            stats = loop_mix + 2 * kLoopPart, matrices = stats + 2 * kGradientRows * kHeads * 4,
                            barrier = matrices + 2 * kGradientRows * kMatrixBytes, bytes = barrier + 16;
};

/// What load_differences() has put of own row `row`, for all of a lane's elements.
MOTET_DEVICE void own_stats(float* d, uint32_t at, int row, const Lane& lane) {
  MOTET_UNROLL
  for (int k = 0; k < 2; ++k) {
    const float2 v = load8(at + row * kHeads * 4 + (lane.c * 2 + k * 8) * 4);
    d[4 * k] = d[4 * k + 2] = v.x, d[4 * k + 1] = d[4 * k + 3] = v.y;
  }
}
/// `of` - lse or row sum of the loop rows, likewise.
MOTET_DEVICE void loop_stats(float* d, uint32_t at, float of, const Lane& lane) {
  MOTET_UNROLL
  for (int k = 0; k < 4; ++k) {
    const float2 v = load8(at + (lane.g + (k & 1) * 8) * kHeads * 4 + (lane.c * 2 + (k >> 1) * 8) * 4);
    d[2 * k] = of - v.x, d[2 * k + 1] = of - v.y;
  }
}

// An interval is: the mixes of tile i, then scores of tile i+1 and dout . v of it.
template <bool kBfloat16, Mixing kMixing>
MOTET_KERNEL(kRowSumThreads)
row_sums(const MOTET_PARAMETER Call c) {
  using At = RowSumMemory;
  constexpr int kTiles = 2, kMixerRows = 4;
  const Args& a = c.a;
  const uint32_t base = opaque(shared_base());
  const Lane lane;
  const int l = lane.l, w = threadIdx.x / 32, h = w * 2;
  Loader load;
  load.init(base + At::barrier);
  const Walk<false, kRowSumRows> at(a);
  const char* loop_mix = c.loop_mix + static_cast<int64_t>(at.b) * (c.loop_rows / kLoop) * 2 * kLoopMixBytes;
  const float dout_scale = c.dout_scale[at.b];
  for (int k = 0; k < 2; ++k)
    load_block<kRowSumThreads>(
        base + At::matrices + k * kRowSumRows * kMatrixBytes,
        c.matrices + ((static_cast<int64_t>(k) * a.B + at.b) * c.own_rows + at.own0) * kMatrixBytes,
        kRowSumRows * kMatrixBytes);
  load_differences<kRowSumThreads>(
      base + At::lse, c.lse + (static_cast<int64_t>(at.b) * c.query_rows + at.own0) * kHeads, kRowSumRows * kHeads, 0);
  uint32_t q[2][kTiles][4][4], g[2][kTiles][4][4];
  int loop_head[2], value_head[2];
  MOTET_UNROLL
  for (int j = 0; j < 2; ++j) {
    const bool score = h + j < a.score_heads, output = h + j < a.output_heads;
    loop_head[j] = score ? a.key_of[h + j] : 0;
    value_head[j] = output ? a.value_of[h + j] : 0;
    load_own<kBfloat16, kTiles>(q[j], a.q, at.b, at.own0, score ? a.T : 0, score ? h + j : 0, a.D, kScoreScale, l);
    load_own<kBfloat16, kTiles>(g[j], a.dout, at.b, at.own0, output ? a.T : 0, output ? h + j : 0, a.E, dout_scale, l);
  }
  const Products<kBfloat16> products(h, l, loop_head, value_head);
  block_sync();
  const auto round = [&](int t) {  // everything of tile t
    const bool ok = at.mine(t);
    arrivals_expect(
        load.barrier,
        ok ? (c.loop_box + c.value_box) * kHeadBytes + (kMixing == Mixing::both ? 2 * kLoopMixBytes : 0) : 0);
    if (!ok) return;
    copy_tile(base + At::tiles + (t & 1) * kTileBytes, &c.loop, 0, t * kLoop, 0, at.b, load.barrier);
    copy_tile(base + At::values, &c.value, 0, t * kLoop, 0, at.b, load.barrier);
    if (kMixing == Mixing::both)
      copy_bytes(base + At::loop_mix + (t & 1) * At::kLoopPart, loop_mix + static_cast<int64_t>(t) * 2 * kLoopMixBytes,
                 2 * kLoopMixBytes, load.barrier);
  };
  float sum[kMixerRows][4] = {};
  const uint32_t s_lane = opaque(score_lane(l)), m_lane = opaque(matrix_lane(l)), m_back = opaque(matrix_lane_back(l));
  uint32_t s0 = base + At::scores, s1 = s0 + At::kScores;
  for (int i = at.first - 1; i < at.end; ++i) {
    if (threadIdx.x == 0) round(i + 1);
    if (at.mine(i)) {
      const uint32_t part = base + At::loop_mix + (i & 1) * At::kLoopPart;
      const auto work = [&](bool edge) {
        float p[kMixerRows][8];
        LoopMix m;
        if (kMixing == Mixing::both) m.load(part, l);
        MOTET_UNROLL
        for (int r = 0; r < kMixerRows; r += 2) {
          uint32_t x[2][4], matrix[2][4];
          MOTET_UNROLL
          for (int n = 0; n < 2; ++n) {
            const int row = w * kMixerRows + r + n;
            load_matrices_transposed(x[n], score_row(s0, s_lane, row));
            load_matrices_transposed(matrix[n], base + At::matrices + row * kMatrixBytes + m_lane);
            own_stats(p[r + n], base + At::lse, row, lane);
          }
          mix<kMixing, 2>(p + r, x, matrix, m, lane);
          if (edge) {
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) at.hide(p[r + n], at.own0 + w * kMixerRows + r + n, i, lane);
          }
          MOTET_UNROLL
          for (int k = 0; k < 8; ++k) {
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) p[r + n][k] = power_of_2(p[r + n][k]);
          }
        }
        if (kMixing == Mixing::both) m.load<true>(part + kLoopMixBytes, l);
        MOTET_UNROLL
        for (int r = 0; r < kMixerRows; r += 2) {
          uint32_t x[2][4], matrix[2][4];
          float d[2][8] = {};
          MOTET_UNROLL
          for (int n = 0; n < 2; ++n) {
            const int row = w * kMixerRows + r + n;
            load_matrices_transposed(x[n], score_row(base + At::grads, s_lane, row));
            load_matrices(matrix[n], base + At::matrices + (kRowSumRows + row) * kMatrixBytes + m_back);
          }
          mix<kMixing, 2>(d, x, matrix, m, lane);
          MOTET_UNROLL
          for (int n = 0; n < 2; ++n) {
            MOTET_UNROLL
            for (int k = 0; k < 8; ++k) sum[r + n][(k >> 2) * 2 + (k & 1)] += p[r + n][k] * d[n][k];
          }
        }
      };
      if (at.edge(i))
        work(true);
      else
        work(false);
    }
    if (w == 0) load.arrived();
    block_sync();
    if (at.mine(i + 1)) {
      products.template scores2<kTiles>(s1, q, base + At::tiles + ((i + 1) & 1) * kTileBytes, products.loop,
                                        kScoreScale);
      products.template scores2<kTiles>(base + At::grads, g, base + At::values, products.value, dout_scale);
    }
    block_sync();
    const uint32_t t = s0;
    s0 = s1, s1 = t;
  }
  MOTET_UNROLL
  for (int r = 0; r < kMixerRows; ++r) {
    const int row = w * kMixerRows + r, t = at.own0 + row;
    float least = INFINITY, most = -INFINITY;  // of the heads' -lse
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      float v = sum[r][i];
      v += shuffle_xor(v, 4);
      v += shuffle_xor(v, 8);
      v += shuffle_xor(v, 16);
      if (lane.g != 0) continue;
      const int head = lane.c * 2 + (i & 1) + (i >> 1) * 8;
      if (t < a.T && head < a.softmax_heads) {
        const float own = load4(base + At::lse + (row * kHeads + head) * 4);
        least = fminf(least, own), most = fmaxf(most, own);
        if (!(fabsf(v) < INFINITY)) c.unsafe[at.b] = 1;
      }
      c.row_sums[(static_cast<int64_t>(at.b) * c.query_rows + t) * kHeads + head] = v;
    }
    MOTET_UNROLL
    for (int step = 1; step < 4; step *= 2)
      least = fminf(least, shuffle_xor(least, step)), most = fmaxf(most, shuffle_xor(most, step));
    if (most - least > kFarBelow) c.unsafe[at.b] = 1;
  }
}

// With roles, as in weigh: 4 warps mix tile i; 8 make the gradient of tile i-1, then scores of tile i+1 in its place.
template <bool kBfloat16, Mixing kMixing, bool kOwnKeys>
MOTET_KERNEL(kGradientThreads)
gradients_of(const MOTET_PARAMETER Call c) {
  using At = GradientMemory;
  constexpr int kMixerRows = 4;
  const Args& a = c.a;
  const uint32_t base = opaque(shared_base());
  const Lane lane;
  const int l = lane.l, w = threadIdx.x / 32;
  Loader load;
  load.init(base + At::barrier);
  const Walk<kOwnKeys, kGradientRows> at(a);
  const int64_t sequence = static_cast<int64_t>(at.b);
  const char* loop_mix = c.loop_mix + sequence * (c.loop_rows / kLoop) * 2 * kLoopMixBytes;
  const float *lse = c.lse + sequence * c.query_rows * kHeads, *sums = c.row_sums + sequence * c.query_rows * kHeads;
  const float dout_scale = c.dout_scale[at.b], un = exp2f(-kGradientLift) / dout_scale;
  for (int k = 0; k < 2; ++k)
    load_block<kGradientThreads>(
        base + At::matrices + k * kGradientRows * kMatrixBytes,
        c.matrices + ((k * static_cast<int64_t>(a.B) + at.b) * c.own_rows + at.own0) * kMatrixBytes,
        kGradientRows * kMatrixBytes);
  if (!kOwnKeys) {
    constexpr int kStats = kGradientRows * kHeads;
    load_differences<kGradientThreads>(base + At::stats, lse + at.own0 * kHeads, kStats, kGradientLift);
    load_differences<kGradientThreads>(base + At::stats + kStats * 4, sums + at.own0 * kHeads, kStats, 0);
  }
  block_sync();
  // float16 would not hold what a score's scale makes of dA.
  constexpr float kKept = kBfloat16 ? 1 : kScoreScale;
  if (w < 4) {
    more_registers<200>();
    float dm[kMixerRows][2][8] = {};
    const uint32_t s_lane = opaque(score_lane(l)), m_lane = opaque(matrix_lane(l)),
                   m_back = opaque(matrix_lane_back(l));
    for (int i = at.first - 2; i <= at.end; ++i) {
      if (at.mine(i)) {
        const uint32_t part = base + At::loop_mix + (i & 1) * At::kLoopPart;
        const uint32_t s0 = base + At::scores + (i & 1) * At::kScores, g0 = base + At::grads + (i & 1) * At::kScores;
        const auto start = [&](float* d, int row, int which) {
          if (kOwnKeys)
            loop_stats(d, part + 2 * kLoopMixBytes + which * kStatsBytes, which == 0 ? kGradientLift : 0, lane);
          else
            own_stats(d, base + At::stats + which * kGradientRows * kHeads * 4, row, lane);
        };
        const auto matrix_at = [&](int which, int row) {
          return base + At::matrices + (which * kGradientRows + row) * kMatrixBytes;
        };
        const auto work = [&](bool edge) {
          float p[kMixerRows][8];
          uint32_t dl[kMixerRows][4];
          LoopMix m;
          if (kMixing == Mixing::both) m.load(part, l);
          MOTET_UNROLL
          for (int r = 0; r < kMixerRows; r += 2) {
            uint32_t x[2][4], matrix[2][4];
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) {
              const int row = w * kMixerRows + r + n;
              load_matrices_transposed(x[n], score_row(s0, s_lane, row));
              load_matrices_transposed(matrix[n], matrix_at(0, row) + m_lane);
              start(p[r + n], row, 0);
            }
            mix<kMixing, 2>(p + r, x, matrix, m, lane);
            if (edge) {
              MOTET_UNROLL
              for (int n = 0; n < 2; ++n) at.hide(p[r + n], at.own0 + w * kMixerRows + r + n, i, lane);
            }
            MOTET_UNROLL
            for (int k = 0; k < 8; ++k) {
              MOTET_UNROLL
              for (int n = 0; n < 2; ++n) p[r + n][k] = power_of_2(p[r + n][k]);
            }
          }
          if (kMixing == Mixing::both) m.load<true>(part + kLoopMixBytes, l);
          MOTET_UNROLL
          for (int r0 = 0; r0 < kMixerRows; r0 += 2) {
            uint32_t x[2][4], matrix[2][4];
            float d[2][8];
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) {
              const int row = w * kMixerRows + r0 + n;
              load_matrices_transposed(x[n], score_row(g0, s_lane, row));
              load_matrices(matrix[n], matrix_at(1, row) + m_back);
              start(d[n], row, 1);
            }
            mix<kMixing, 2>(d, x, matrix, m, lane);
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) {
              const int r = r0 + n;
              uint32_t weights[4], b[4];
              pack_weights(weights, p[r]);
              load_matrices(b, score_row(g0, s_lane, w * kMixerRows + r));
              const uint32_t turned[4] = {transposed(weights[0]), transposed(weights[2]), transposed(weights[1]),
                                          transposed(weights[3])};
              multiply<false>(dm[r][1], turned, b[0], b[1]);
              multiply<false>(dm[r][1] + 4, turned, b[2], b[3]);
              MOTET_UNROLL
              for (int k = 0; k < 8; ++k) d[n][k] *= p[r][k];
              pack_weights(dl[r], d[n]);
            }
          }
          if (kMixing == Mixing::both) m.load<true>(part, l);
          MOTET_UNROLL
          for (int r0 = 0; r0 < kMixerRows; r0 += 2) {
            uint32_t matrix[2][4];
            float d[2][8] = {};
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) {
              const int r = r0 + n, row = w * kMixerRows + r;
              uint32_t scores[4];
              load_matrices(scores, score_row(s0, s_lane, row));
              load_matrices(matrix[n], matrix_at(0, row) + m_back);
              const uint32_t turned[4] = {scores[0], scores[2], scores[1], scores[3]};
              multiply<false>(dm[r][0], turned, transposed(dl[r][0]), transposed(dl[r][1]));
              multiply<false>(dm[r][0] + 4, turned, transposed(dl[r][2]), transposed(dl[r][3]));
            }
            mix<kMixing, 2>(d, dl + r0, matrix, m, lane);
            MOTET_UNROLL
            for (int n = 0; n < 2; ++n) {
              uint32_t u[4];
              MOTET_UNROLL
              for (int k = 0; k < 4; ++k) u[k] = pack<kBfloat16>(d[n][2 * k] * kKept, d[n][2 * k + 1] * kKept);
              store_matrices_transposed(score_row(s0, s_lane, w * kMixerRows + r0 + n), u);
            }
          }
        };
        if (at.edge(i))
          work(true);
        else
          work(false);
      }
      block_sync();
    }
    if (!finite(dm)) c.unsafe[at.b] = 1;  // scores of pairs that are not seen count 0 times, and may be infinite
    MOTET_UNROLL
    for (int r = 0; r < kMixerRows; ++r) {
      MOTET_UNROLL
      for (int which = 0; which < 2; ++which) {
        MOTET_UNROLL
        for (int k = 0; k < 4; ++k) {  // input heads g (+8), output heads 2c (+8)
          const float f = which == 0 ? un * a.scale / kScoreScale : un;
          float* const to = c.matrix_gradients +
                            ((sequence * c.own_rows + at.own0 + w * kMixerRows + r) * 2 + which) * kHeads * kHeads +
                            (lane.g + (k & 1) * 8) * kHeads + lane.c * 2 + (k >> 1) * 8;
          to[0] = dm[r][which][2 * k] * f, to[1] = dm[r][which][2 * k + 1] * f;
        }
      }
    }
  } else {
    fewer_registers<152>();
    const int h = (w - 4) * 2;
    uint32_t q[2][1][4][4], g[2][1][4][4];
    int loop_head[2], value_head[2];
    float o[2][1][8][4] = {};
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      const bool score = h + j < a.score_heads, output = h + j < a.output_heads;
      const int key = score ? a.key_of[h + j] : 0, value = output ? a.value_of[h + j] : 0;
      loop_head[j] = kOwnKeys ? (score ? h + j : 0) : key;
      value_head[j] = kOwnKeys ? (output ? h + j : 0) : value;
      const int rows = kOwnKeys ? a.S : a.T;
      load_own<kBfloat16, 1>(q[j], kOwnKeys ? a.k : a.q, at.b, at.own0, score ? rows : 0,
                             kOwnKeys ? key
                             : score  ? h + j
                                      : 0,
                             a.D, kScoreScale, l);
      load_own<kBfloat16, 1>(g[j], kOwnKeys ? a.v : a.dout, at.b, at.own0, output ? rows : 0,
                             kOwnKeys ? value
                             : output ? h + j
                                      : 0,
                             a.E, dout_scale, l);
    }
    const Products<kBfloat16> products(h, l, loop_head, value_head);
    uint32_t k0 = base + At::tiles, k1 = k0 + kTileBytes, k2 = k1 + kTileBytes;  // tiles i-1 (then i+2), i, i+1
    for (int i = at.first - 2; i <= at.end; ++i) {
      const int next = (i + 1) & 1;
      const uint32_t s1 = base + At::scores + next * At::kScores, g1 = base + At::grads + next * At::kScores;
      if (at.mine(i - 1)) {
        MOTET_UNROLL
        for (int j = 0; j < 2; ++j) products.template values<1>(o[j], s1, k0, products.loop_rows, j);
      }
      sync_256();
      if (w == 4 && l == 0) {  // scores of tile i+2, mix of tile i+1
        const bool tile = i + 2 < at.end, row = i + 1 >= at.first && i + 1 < at.end;
        const bool mixes = row && kMixing == Mixing::both, stats = row && kOwnKeys;
        const uint32_t to = base + At::loop_mix + next * At::kLoopPart;
        arrivals_expect(load.barrier, (tile ? (c.loop_box + c.value_box) * kHeadBytes : 0) +
                                          (mixes ? 2 * kLoopMixBytes : 0) + (stats ? 2 * kStatsBytes : 0));
        if (tile) {
          copy_tile(k0, &c.loop, 0, (i + 2) * kLoop, 0, at.b, load.barrier);
          copy_tile(base + At::values + (i & 1) * kTileBytes, &c.value, 0, (i + 2) * kLoop, 0, at.b, load.barrier);
        }
        if (mixes)
          copy_bytes(to, loop_mix + static_cast<int64_t>(i + 1) * 2 * kLoopMixBytes, 2 * kLoopMixBytes, load.barrier);
        if (stats) {
          copy_bytes(to + 2 * kLoopMixBytes, lse + (i + 1) * kLoop * kHeads, kStatsBytes, load.barrier);
          copy_bytes(to + 2 * kLoopMixBytes + kStatsBytes, sums + (i + 1) * kLoop * kHeads, kStatsBytes, load.barrier);
        }
      }
      if (at.mine(i + 1)) {
        products.template scores2<1>(s1, q, k2, products.loop, kScoreScale);
        products.template scores2<1>(g1, g, base + At::values + next * kTileBytes, products.value, dout_scale);
      }
      const uint32_t t = k0;
      k0 = k1, k1 = k2, k2 = t;
      if (w == 11) load.arrived();
      block_sync();
    }
    const float f = un * kScoreScale / kLog2e / kKept;
    if (!finite(o)) c.unsafe[at.b] = 1;  // as what float16 did not hold on its way has become
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j)
      if (c.out && h + j < a.score_heads)
        Products<kBfloat16>::template write<1>(o[j], c.out, at.b, at.own0, kOwnKeys ? a.S : a.T, a.score_heads, h + j,
                                               0, a.D, f, lane);
  }
}

}  // namespace motet::cuda::tensor
