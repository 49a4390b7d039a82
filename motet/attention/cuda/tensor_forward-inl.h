#pragma once
#include "motet/attention/cuda/tensor-inl.h"

// Forward of the tensor kernels: log_sums makes the log-sum-exp of every softmax head, weigh the outputs under it; with
// kOwnKeys weigh is dV of the backward pass. Mixers and products work in turns on buffers: in interval i the product
// warps make the scores of tile i+1 and add the values of tile i-1 while the mixers work on tile i; one barrier an
// interval.
namespace motet::cuda::tensor {

inline constexpr int kSumRows = 64, kSumThreads = 512;      // log_sums: 8 mixer and 8 product warps
inline constexpr int kWeighRows = 32, kWeighThreads = 384;  // weigh: 4 mixer and 8 product warps

struct SumMemory {
  static constexpr int kScores = kSumRows * kRowBytes;
  static constexpr uint32_t tiles = 0, scores = tiles + 2 * kTileBytes, matrices = scores + 2 * kScores,
                            loop_mix = matrices + kSumRows * kMatrixBytes, tops = loop_mix + 2 * kLoopMixBytes,
                            barrier = tops + kSumRows * 4, bytes = barrier + 16;
};
struct WeighMemory {
  static constexpr int kScores = kWeighRows * kRowBytes, kLoopPart = 2 * kLoopMixBytes + kStatsBytes;
  static constexpr uint32_t tiles = 0, values = tiles + 2 * kTileBytes, scores = values + 2 * kTileBytes,
                            loop_mix = scores + 3 * kScores, lse = loop_mix + 2 * kLoopPart,
                            matrices = lse + kWeighRows * kHeads * 4,
                            barrier = matrices + 2 * kWeighRows * kMatrixBytes, bytes = barrier + 16;
};

MOTET_DEVICE float most_of(const float* d) {
  return fmaxf(fmaxf(fmaxf(d[0], d[1]), fmaxf(d[2], d[3])), fmaxf(fmaxf(d[4], d[5]), fmaxf(d[6], d[7])));
}

template <bool kBfloat16, Mixing kMixing>
MOTET_KERNEL(kSumThreads)
log_sums(const MOTET_PARAMETER Call c) {
  using At = SumMemory;
  constexpr int kTiles = kSumRows / 16, kMixerRows = kSumRows / 8;
  const Args& a = c.a;
  const uint32_t base = opaque(shared_base());
  const Lane lane;
  const int l = lane.l, w = threadIdx.x / 32;
  const Unit unit(a, blockIdx.z);
  Loader load;
  load.init(base + At::barrier);
  const Walk<false, kSumRows> at(a);
  const int key_base = a.key_of[unit.first_score];
  const char* loop_mix = c.loop_mix + static_cast<int64_t>(at.b) * (c.loop_rows / kLoop) * 2 * kLoopMixBytes;
  const auto round = [&](int i) {  // what interval i+1 needs: scores of tile i+2, the mix of tile i+1
    const bool tile = i + 2 < at.end, m = kMixing == Mixing::both && i + 1 >= at.first && i + 1 < at.end;
    arrivals_expect(load.barrier, (tile ? c.loop_box * kHeadBytes : 0) + (m ? kLoopMixBytes : 0));
    if (tile)
      copy_tile(base + At::tiles + (i & 1) * kTileBytes, &c.loop, 0, (i + 2) * kLoop, key_base, at.b, load.barrier);
    if (m)
      copy_bytes(base + At::loop_mix + ((i + 1) & 1) * kLoopMixBytes,
                 loop_mix + static_cast<int64_t>(i + 1) * 2 * kLoopMixBytes, kLoopMixBytes, load.barrier);
  };
  if (kMixing != Mixing::none)
    load_block<kSumThreads>(
        base + At::matrices,
        c.matrices + ((static_cast<int64_t>(blockIdx.z) * 2 * a.B + at.b) * c.own_rows + at.own0) * kMatrixBytes,
        kSumRows * kMatrixBytes);
  block_sync();
  if (w < 8) {
    fewer_registers<104>();
    float sum[kMixerRows][4];  // of 2^(logit - top); the top is the row's, for all heads, and lies in shared memory
    unsigned begun = 0;
    MOTET_UNROLL
    for (int r = 0; r < kMixerRows; ++r) {
      if (l == 0) store4(base + At::tops + (w * kMixerRows + r) * 4, 0);
      MOTET_UNROLL
      for (int i = 0; i < 4; ++i) sum[r][i] = 0;
    }
    const uint32_t s_lane = opaque(score_lane(l)), m_lane = opaque(matrix_lane(l));
    for (int i = at.first - 2; i < at.end; ++i) {
      if (threadIdx.x == 0) round(i);
      if (at.mine(i)) {
        const uint32_t s = base + At::scores + (i & 1) * At::kScores;
        LoopMix m;
        if (kMixing == Mixing::both) m.load(base + At::loop_mix + (i & 1) * kLoopMixBytes, l);
        const auto work = [&](bool edge) {
          MOTET_UNROLL
          for (int r = 0; r < kMixerRows; ++r) {
            const int row = w * kMixerRows + r;
            uint32_t x[1][4], matrix[1][4];
            float d[1][8];
            load_matrices_transposed(x[0], score_row(s, s_lane, row));
            const float top = load4(base + At::tops + row * 4);
            MOTET_UNROLL
            for (int k = 0; k < 8; ++k) d[0][k] = -top;
            if (kMixing == Mixing::none) {
              unmixed(d[0], x[0], c.factor, lane);
            } else {
              load_matrices_transposed(matrix[0], base + At::matrices + row * kMatrixBytes + m_lane);
              mix<kMixing, 1>(d, x, matrix, m, lane);
            }
            if (edge) at.hide(d[0], at.own0 + row, i, lane);
            const float most = most_of(d[0]);
            if (warp_any(most > 60 || !(begun >> r & 1))) {  // another top: rarely but for the first tile
              float rise = most;
              MOTET_UNROLL
              for (int step = 1; step < 32; step *= 2) rise = fmaxf(rise, shuffle_xor(rise, step));
              if (rise > -INFINITY) {
                begun |= 1u << r;
                if (l == 0) store4(base + At::tops + row * 4, top + rise);
                const float less = power_of_2(-rise);
                MOTET_UNROLL
                for (int k = 0; k < 4; ++k) sum[r][k] = sum[r][k] == 0 ? 0 : sum[r][k] * less;
                MOTET_UNROLL
                for (int k = 0; k < 8; ++k) d[0][k] -= rise;
              } else if (at.sees_any(at.own0 + row, i, lane)) {
                c.unsafe[at.b] = 1;  // what it sees is all beyond float16
              }
            }
            MOTET_UNROLL
            for (int k = 0; k < 8; ++k) sum[r][(k >> 2) * 2 + (k & 1)] += power_of_2(d[0][k]);
          }
        };
        if (at.edge(i))
          work(true);
        else
          work(false);
      }
      block_sync();
    }
    MOTET_UNROLL
    for (int r = 0; r < kMixerRows; ++r) {
      MOTET_UNROLL
      for (int i = 0; i < 4; ++i) {
        float v = sum[r][i];
        v += shuffle_xor(v, 4);
        v += shuffle_xor(v, 8);
        v += shuffle_xor(v, 16);
        const int head = lane.c * 2 + (i & 1) + (i >> 1) * 8, t = at.own0 + w * kMixerRows + r;
        if (lane.g != 0) continue;
        const bool seen = begun >> r & 1, real = t < a.T && head < unit.softmax;
        const float log = log_of_2(v);
        if (real && seen && !(log > -kFarBelow && v < INFINITY)) c.unsafe[at.b] = 1;  // or a number that is none
        const float lse = seen && v > 0 ? load4(base + At::tops + (w * kMixerRows + r) * 4) + log : 0;
        c.lse[((static_cast<int64_t>(blockIdx.z) * a.B + at.b) * c.query_rows + t) * kHeads + head] = lse;
        if (c.lse_out && real)
          c.lse_out[(static_cast<int64_t>(at.b) * a.softmax_heads + unit.first_score + head) * a.T + t] =
              seen ? lse / kLog2e : -INFINITY;
      }
    }
  } else {
    more_registers<152>();
    const int h = (w - 8) * 2;
    uint32_t q[2][kTiles][4][4];
    int loop_head[2];
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int head = unit.first_score + h + j;
      const bool real = head < a.score_heads;
      loop_head[j] = real ? a.key_of[head] - key_base : 0;
      load_own<kBfloat16, kTiles>(q[j], a.q, at.b, at.own0, real ? a.T : 0, real ? head : 0, a.D, kScoreScale, l);
    }
    const Products<kBfloat16> products(h, l, loop_head, loop_head);
    for (int i = at.first - 2; i < at.end; ++i) {
      if (at.mine(i + 1)) {
        MOTET_UNROLL
        for (int j = 0; j < 2; ++j)
          products.template scores<kTiles>(base + At::scores + ((i + 1) & 1) * At::kScores, q[j],
                                           base + At::tiles + ((i + 1) & 1) * kTileBytes, j);
      }
      if (w == 8) load.arrived();
      block_sync();
    }
  }
}

template <bool kBfloat16, Mixing kMixing, bool kOwnKeys>
MOTET_KERNEL(kWeighThreads)
weigh(const MOTET_PARAMETER Call c) {
  using At = WeighMemory;
  constexpr int kTiles = 2, kBatch = 4, kLockstep = 2;
  const Args& a = c.a;
  const uint32_t base = opaque(shared_base());
  const Lane lane;
  const int l = lane.l, w = threadIdx.x / 32;
  const int result_width = a.E, chunks = (result_width + kWidth - 1) / kWidth;
  const int column0 = static_cast<int>(blockIdx.z) % chunks * kWidth, unit_number = blockIdx.z / chunks;
  const Unit unit(a, unit_number);
  Loader load;
  load.init(base + At::barrier);
  const Walk<kOwnKeys, kWeighRows> at(a);
  const int loop_base = kOwnKeys ? unit.first_score : a.key_of[unit.first_score];
  const int value_base = kOwnKeys ? unit.first_output : a.value_of[unit.first_output];
  const char* loop_mix = c.loop_mix + static_cast<int64_t>(at.b) * (c.loop_rows / kLoop) * 2 * kLoopMixBytes;
  const float* lse = c.lse + (static_cast<int64_t>(unit_number) * a.B + at.b) * c.query_rows * kHeads;
  const auto round =
      [&](int i) {  // what interval i+1 needs: scores of tile i+2, the mix of tile i+1, the values of tile i
        const bool k = i + 2 < at.end, m = i + 1 >= at.first && i + 1 < at.end, v = i >= at.first && i < at.end;
        const bool mixes = m && kMixing == Mixing::both, stats = m && kOwnKeys;
        arrivals_expect(load.barrier, (k ? c.loop_box * kHeadBytes : 0) + (v ? c.value_box * kHeadBytes : 0) +
                                          (mixes ? 2 * kLoopMixBytes : 0) + (stats ? kStatsBytes : 0));
        const uint32_t part = base + At::loop_mix + ((i + 1) & 1) * At::kLoopPart;
        if (k)
          copy_tile(base + At::tiles + (i & 1) * kTileBytes, &c.loop, 0, (i + 2) * kLoop, loop_base, at.b,
                    load.barrier);
        if (v)
          copy_tile(base + At::values + (i & 1) * kTileBytes, &c.value, column0, i * kLoop, value_base, at.b,
                    load.barrier);
        if (mixes)
          copy_bytes(part, loop_mix + static_cast<int64_t>(i + 1) * 2 * kLoopMixBytes, 2 * kLoopMixBytes, load.barrier);
        if (stats) copy_bytes(part + 2 * kLoopMixBytes, lse + (i + 1) * kLoop * kHeads, kStatsBytes, load.barrier);
      };
  if (kMixing != Mixing::none) {
    for (int k = 0; k < 2; ++k)
      load_block<kWeighThreads>(
          base + At::matrices + k * kWeighRows * kMatrixBytes,
          c.matrices +
              (((static_cast<int64_t>(unit_number) * 2 + k) * a.B + at.b) * c.own_rows + at.own0) * kMatrixBytes,
          kWeighRows * kMatrixBytes);
  }
  if (!kOwnKeys) load_differences<kWeighThreads>(base + At::lse, lse + at.own0 * kHeads, kWeighRows * kHeads, kLift);
  block_sync();
  uint32_t s0 = base + At::scores, s1 = s0 + At::kScores, s2 = s1 + At::kScores;  // tiles i, i+1, i-1
  const auto turn = [&] {
    const uint32_t t = s2;
    s2 = s0, s0 = s1, s1 = t;
    if (w == 11) load.arrived();
    block_sync();
  };
  if (w < 4) {
    fewer_registers<88>();
    const uint32_t s_lane = opaque(score_lane(l)), m_lane = opaque(matrix_lane(l));
    for (int i = at.first - 2; i <= at.end; ++i) {
      if (at.mine(i)) {
        const uint32_t part = base + At::loop_mix + (i & 1) * At::kLoopPart;
        const auto work = [&](bool edge) {
          MOTET_NO_UNROLL
          for (int batch = 0; batch < 2; ++batch) {
            const int row0 = w * 8 + batch * kBatch;
            uint32_t p[kBatch][4];
            {
              LoopMix m;
              if (kMixing == Mixing::both) m.load(part, l);
              float shift[8];
              if (kOwnKeys) {
                MOTET_UNROLL
                for (int k = 0; k < 4; ++k) {
                  const float2 v = load8(part + 2 * kLoopMixBytes + (lane.g + (k & 1) * 8) * kHeads * 4 +
                                         (lane.c * 2 + (k >> 1) * 8) * 4);
                  shift[2 * k] = kLift - v.x, shift[2 * k + 1] = kLift - v.y;
                }
              }
              MOTET_UNROLL
              for (int r = 0; r < kBatch; r += kLockstep) {
                uint32_t x[kLockstep][4], matrix[kLockstep][4];
                float d[kLockstep][8];
                MOTET_UNROLL
                for (int n = 0; n < kLockstep; ++n) {
                  const int row = row0 + r + n;
                  load_matrices_transposed(x[n], score_row(s0, s_lane, row));
                  if (kMixing != Mixing::none)
                    load_matrices_transposed(matrix[n], base + At::matrices + row * kMatrixBytes + m_lane);
                  MOTET_UNROLL
                  for (int k = 0; k < 2; ++k) {
                    if (kOwnKeys) {
                      MOTET_UNROLL
                      for (int e = 0; e < 4; ++e) d[n][4 * k + e] = shift[4 * k + e];
                    } else {
                      const float2 v = load8(base + At::lse + row * kHeads * 4 + (lane.c * 2 + k * 8) * 4);
                      d[n][4 * k] = d[n][4 * k + 2] = v.x, d[n][4 * k + 1] = d[n][4 * k + 3] = v.y;
                    }
                  }
                }
                if (kMixing != Mixing::none) {
                  mix<kMixing, kLockstep>(d, x, matrix, m, lane);
                } else {
                  MOTET_UNROLL
                  for (int n = 0; n < kLockstep; ++n) unmixed(d[n], x[n], c.factor, lane);
                }
                if (edge) {
                  MOTET_UNROLL
                  for (int n = 0; n < kLockstep; ++n) at.hide(d[n], at.own0 + row0 + r + n, i, lane);
                }
                MOTET_UNROLL
                for (int k = 0; k < 8; ++k) {
                  MOTET_UNROLL
                  for (int n = 0; n < kLockstep; ++n) d[n][k] = power_of_2(d[n][k]);
                }
                MOTET_UNROLL
                for (int n = 0; n < kLockstep; ++n) {
                  if (kMixing != Mixing::none) {
                    pack_weights(p[r + n], d[n]);
                  } else {
                    MOTET_UNROLL
                    for (int k = 0; k < 4; ++k) p[r + n][k] = pack<kBfloat16>(d[n][2 * k], d[n][2 * k + 1]);
                  }
                }
              }
            }
            {
              LoopMix m;
              if (kMixing == Mixing::both) m.load(part + kLoopMixBytes, l);
              MOTET_UNROLL
              for (int r = 0; r < kBatch; r += kLockstep) {
                uint32_t matrix[kLockstep][4];
                float d[kLockstep][8] = {};
                if (kMixing != Mixing::none) {
                  MOTET_UNROLL
                  for (int n = 0; n < kLockstep; ++n)
                    load_matrices_transposed(matrix[n],
                                             base + At::matrices + (kWeighRows + row0 + r + n) * kMatrixBytes + m_lane);
                  mix<kMixing, kLockstep>(d, p + r, matrix, m, lane);
                }
                MOTET_UNROLL
                for (int n = 0; n < kLockstep; ++n) {
                  uint32_t u[4];
                  MOTET_UNROLL
                  for (int k = 0; k < 4; ++k)
                    u[k] = kMixing != Mixing::none ? pack<kBfloat16>(d[n][2 * k], d[n][2 * k + 1]) : p[r + n][k];
                  store_matrices_transposed(score_row(s0, s_lane, row0 + r + n), u);
                }
              }
            }
          }
        };
        if (at.edge(i))
          work(true);
        else
          work(false);
      }
      turn();
    }
  } else {
    more_registers<208>();
    const int h = (w - 4) * 2;
    uint32_t q[2][kTiles][4][4];
    int loop_head[2], value_head[2];
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int head = unit.first_score + h + j, output = unit.first_output + h + j;
      const bool real = head < a.score_heads;
      loop_head[j] = real ? (kOwnKeys ? head : a.key_of[head]) - loop_base : 0;
      const int outputs = a.pairs.lambda ? kHeads / 2 : kHeads;  // of the unit
      const bool carried = output < a.output_heads && output - unit.first_output < outputs;
      value_head[j] = carried ? (kOwnKeys ? output : a.value_of[output]) - value_base : 0;
      load_own<kBfloat16, kTiles>(q[j], kOwnKeys ? a.k : a.q, at.b, at.own0, real ? (kOwnKeys ? a.S : a.T) : 0,
                                  real ? (kOwnKeys ? a.key_of[head] : head) : 0, a.D, kScoreScale, l);
    }
    const Products<kBfloat16> products(h, l, loop_head, value_head);
    float o[2][kTiles][8][4] = {};
    for (int i = at.first - 2; i <= at.end; ++i) {
      if (w == 4 && l == 0) round(i);
      if (at.mine(i + 1)) {
        MOTET_UNROLL
        for (int j = 0; j < 2; ++j)
          products.template scores<kTiles>(s1, q[j], base + At::tiles + ((i + 1) & 1) * kTileBytes, j);
      }
      if (at.mine(i - 1)) {
        MOTET_UNROLL
        for (int j = 0; j < 2; ++j)
          products.template values<kTiles>(o[j], s2, base + At::values + ((i - 1) & 1) * kTileBytes,
                                           products.value_rows, j);
      }
      turn();
    }
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int output = unit.first_output + h + j;
      const bool last = a.pairs.lambda ? h + j >= kHeads / 2 : false;
      if (output < a.output_heads && !last && c.unsafe && !finite(o[j])) c.unsafe[at.b] = 1;
      if (output < a.output_heads && !last)
        Products<kBfloat16>::template write<kTiles>(o[j], c.out, at.b, at.own0, kOwnKeys ? a.S : a.T, a.output_heads,
                                                    output, column0, result_width, 1.f / 256, lane);
    }
  }
}

}  // namespace motet::cuda::tensor
