#pragma once
#include "motet/attention/cuda/sight.h"
#include "motet/cuda/device.h"

// The tensor-core kernels: 16-bit inputs, scores and weights in float16 between products, sums and softmax in float32.
// All heads that a mix connects (a unit, at most 16, padded to 16) lie in one block. Scores go through shared memory
// once, from "a warp owns two heads" to "a warp owns rows with all heads", and back:
//
//   product warps  S_h = Q_h K_h^T, two heads each; stored as [own row][head][16 loop rows], float16
//   mixer warps    read, for one own row, 16 loop rows x 16 heads as an A fragment: lane l holds loop rows l/4 and
//   l/4+8,
//                  heads 2c, 2c+1, 2c+8, 2c+9 with c = l%4, packed by pairs of heads. What belongs to the own row
//                  (identity, static weight, low rank, gate, full part) is one 16x16 matrix: a product over heads. What
//                  belongs to the loop row is low rank and gate: its two hidden numbers are summed over heads by a
//                  product with ones and go up again elementwise. The result has the A layout again.
//
// "own" are the rows of a block, queries or (kOwnKeys) keys; "loop" those of the other side, 16 at a time.
namespace motet::cuda::tensor {

inline constexpr int kHeads = 16, kWidth = 64, kLoop = 16, kRank = 2;
inline constexpr int kTileBytes = kHeads * kLoop * kWidth * 2, kHeadBytes = kLoop * kWidth * 2;
inline constexpr int kMatrixBytes = kHeads * kHeads * 2;  // of a row and mix
inline constexpr int kLoopMixBytes = 5 * 32 * 16;         // of 16 rows and a mix: down 0, 1, up 0, 1, gate
inline constexpr int kRowBytes = kHeads * kLoop * 2;      // of a row of scores
inline constexpr int kStatsBytes = kLoop * kHeads * 4;    // of 16 rows: one float32 a head
inline constexpr float kLog2e = 1.44269504088896f;
inline constexpr float kScoreScale = 1.f / 16;  // scores are kept so much smaller: |q . k| up to 2^20 fits float16
inline constexpr float kLift = 8;               // weights are kept times 2^8, out of float16's subnormals
/// Likewise where gradients are made: a score's, weight times gradient of the weight, may have 512 times max |dout|.
inline constexpr float kGradientLift = 4;

/// Which parts the mixes of a call have: none at all, a matrix for each own row, and something for loop rows too.
enum class Mixing : uint8_t { none, own, both };

struct Call {
  Args a;
  TileMap loop, value;                  // rows of the scores on the loop side; what they carry, or what meets dout
  const char* matrices;                 // [2 mixes][B,own_rows]
  const char* loop_mix;                 // [B,loop_rows/16][2 mixes]
  int own_rows, loop_rows, query_rows;  // padded to whole blocks; query_rows: of lse and row_sums
  int loop_box, value_box;              // heads of a tile
  float* lse;                           // [units][B,query_rows,16], base 2; 0 where a query sees nothing
  float* row_sums;                      // likewise: sum over keys of P dP
  const float* dout_scale;              // [B]: dout is multiplied by it, so that float16 holds dout . v
  float* lse_out;                       // [B,Ha,T], natural
  void* out;                            // out, dq; with kOwnKeys dk or dv
  float* matrix_gradients;              // [B,own_rows][2 mixes][16][16]
  int* unsafe;                          // [B]: set where float16 or 2^x could not hold what came
  float factor;                         // of the scores without a mix: scale log2 e
};

/// The unit's heads and the rows that a block reads of others'.
struct Unit {
  int first_score, first_output, softmax;  // first heads; softmax heads of the unit
  MOTET_DEVICE Unit(const Args& a, int unit) {
    first_score = unit * kHeads;
    first_output = a.pairs.lambda ? first_score / 2 : first_score;
    softmax = smaller(kHeads, a.softmax_heads - first_score);
  }
};

struct Lane {
  int l, c, g;
  uint32_t even, odd, eye;  // B fragments: ones in even (odd) columns; the identity
  MOTET_DEVICE Lane() {
    l = threadIdx.x & 31, c = l & 3, g = l >> 2;
    even = g & 1 ? 0u : 0x3c003c00u, odd = g & 1 ? 0x3c003c00u : 0u;
    eye = (2 * c == g ? 0x3c00u : 0u) | (2 * c + 1 == g ? 0x3c000000u : 0u);
  }
};

/// This lane's address in a row of a score tile, for load_matrices_transposed: 16-byte pieces (8 loop rows of a head)
/// are exchanged so that 8 heads of a row, and 8 rows of a head, lie in different banks.
MOTET_DEVICE uint32_t score_lane(int l) {
  return ((l >> 4) * 8 + (l & 7)) * 2 + (((l >> 3) & 1) ^ (((l & 7) >> 2) & 1));
}
MOTET_DEVICE uint32_t score_row(uint32_t tile, uint32_t lane, int row) {
  return tile + row * kRowBytes + ((lane ^ (row & 7)) << 4);
}
/// Likewise in the matrix of an own row: rows are input heads, 32 bytes, whose halves are exchanged by bit 2 of the
/// head.
MOTET_DEVICE uint32_t matrix_lane(int l) {  // with load_matrices_transposed: from input to output heads
  const int i = l >> 3, n = (i & 1) * 8 + (l & 7);
  return n * 32 + (((i >> 1) ^ ((n >> 2) & 1)) << 4);
}
MOTET_DEVICE uint32_t matrix_lane_back(int l) {  // with load_matrices: from output to input heads
  const int i = l >> 3, n = (i >> 1) * 8 + (l & 7);
  return n * 32 + (((i & 1) ^ ((n >> 2) & 1)) << 4);
}

/// The loop rows' part of a mix.
struct LoopMix {
  uint32_t down0[4], down1[4], up0[4], up1[4], gate[4];
  /// kBack: the transpose of the mix, down and up change places.
  template <bool kBack = false>
  MOTET_DEVICE void load(uint32_t at, int l) {
    uint32_t* const to[5] = {kBack ? up0 : down0, kBack ? up1 : down1, kBack ? down0 : up0, kBack ? down1 : up1, gate};
    MOTET_UNROLL
    for (int i = 0; i < 5; ++i) {
      const uint4 v = load16(at + (i * 32 + l) * 16);
      to[i][0] = v.x, to[i][1] = v.y, to[i][2] = v.z, to[i][3] = v.w;
    }
  }
};

/// d += mix(x) of N own rows in lockstep, which hides latencies. d[0..3]: heads 2c, 2c+1 of loop rows g, g+8; d[4..7]:
/// heads 2c+8, 2c+9.
template <Mixing kMixing, int N>
MOTET_DEVICE void mix(float (*d)[8], const uint32_t (*x)[4], const uint32_t (*matrix)[4], const LoopMix& m,
                      const Lane& lane) {
  uint32_t p[N][4], h[N][2], t[N][4];
  if constexpr (kMixing == Mixing::both) {
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      MOTET_UNROLL
      for (int r = 0; r < N; ++r) p[r][i] = times2(x[r][i & 1], i < 2 ? m.down0[i & 1] : m.down1[i & 1]);
    }
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      MOTET_UNROLL
      for (int r = 0; r < N; ++r)
        p[r][i] = fma2(x[r][2 + (i & 1)], i < 2 ? m.down0[2 + (i & 1)] : m.down1[2 + (i & 1)], p[r][i]);
    }
    MOTET_UNROLL
    for (int r = 0; r < N; ++r) multiply_half(h[r], p[r], lane.even, lane.odd);
  }
  MOTET_UNROLL
  for (int r = 0; r < N; ++r) {
    multiply<false>(d[r], x[r], matrix[r][0], matrix[r][1]);
    multiply<false>(d[r] + 4, x[r], matrix[r][2], matrix[r][3]);
  }
  if constexpr (kMixing == Mixing::both) {
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      MOTET_UNROLL
      for (int r = 0; r < N; ++r) t[r][i] = times2(x[r][i], m.gate[i]);
    }
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      MOTET_UNROLL
      for (int r = 0; r < N; ++r) t[r][i] = fma2(both_high(h[r][i & 1]), m.up1[i], t[r][i]);
    }
    MOTET_UNROLL
    for (int i = 0; i < 4; ++i) {
      MOTET_UNROLL
      for (int r = 0; r < N; ++r) t[r][i] = fma2(both_low(h[r][i & 1]), m.up0[i], t[r][i]);
    }
    MOTET_UNROLL
    for (int r = 0; r < N; ++r) {
      multiply8(d[r], t[r][0], t[r][1], lane.eye);
      multiply8(d[r] + 4, t[r][2], t[r][3], lane.eye);
    }
  }
}
/// d += x * factor: the layout of a mix without one.
MOTET_DEVICE void unmixed(float* d, const uint32_t* x, float factor, const Lane& lane) {
  float y[8] = {};
  multiply8(y, x[0], x[1], lane.eye);
  multiply8(y + 4, x[2], x[3], lane.eye);
  MOTET_UNROLL
  for (int k = 0; k < 8; ++k) d[k] += y[k] * factor;
}
template <class Numbers>
MOTET_DEVICE bool finite(const Numbers& x) {
  bool all = true;
  if constexpr (std::is_array_v<Numbers>) {
    MOTET_UNROLL
    for (int i = 0; i < static_cast<int>(std::extent_v<Numbers>); ++i) all &= finite(x[i]);
    return all;
  } else {
    return fabsf(x) < INFINITY;
  }
}
MOTET_DEVICE void pack_weights(uint32_t* to, const float* d) {
  MOTET_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = pack_float16(d[2 * i], d[2 * i + 1]);
}

/// A fragments of kTiles * 16 own rows of a head straight from device memory, zeros past the rows and the width; in
/// bfloat16 times f, a power of two, which leaves the products nothing to multiply by.
template <bool kBfloat16, int kTiles>
MOTET_DEVICE void load_own(uint32_t (*to)[4][4], const plain::Operand& x, int b, int row0, int rows, int head,
                           int width, float f, int l) {
  const auto* data = static_cast<const uint16_t*>(x.data) + b * x.batch_stride + head * x.head_stride;
  MOTET_UNROLL
  for (int m = 0; m < kTiles; ++m) {
    MOTET_UNROLL
    for (int s = 0; s < 4; ++s) {
      MOTET_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = row0 + m * 16 + (l >> 2) + (i & 1) * 8, e = s * 16 + (l & 3) * 2 + (i >> 1) * 8;
        const uint32_t two =
            r < rows && e < width ? *reinterpret_cast<const uint32_t*>(data + r * x.row_stride + e) : 0u;
        to[m][s][i] = kBfloat16 ? pack<true>(widen_bfloat16(two) * f, widen_bfloat16(two >> 16) * f) : two;
      }
    }
  }
}

/// The products of the two score heads h, h+1 (h even) of a warp; addresses differ by additions and exclusive ors of
/// constants.
template <bool kBfloat16>
struct Products {
  uint32_t st, ld;                       // storing and loading scores
  uint32_t loop[2], value[2];            // the heads of a tile as B, contracted over the width
  uint32_t loop_rows[2], value_rows[2];  // contracted over the rows
  /// Where the warp's two heads lie in tiles of the loop side and of values.
  MOTET_DEVICE Products(int h, int l, const int* loop_head, const int* value_head) {
    const uint32_t hs = (h >> 2) & 1, r = l & 7;
    const uint32_t b = r * 128 + (((l >> 3) ^ r) << 4), bt = (((l >> 3) & 1) * 8 + r) * 128 + (((l >> 4) ^ r) << 4);
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      loop[j] = opaque(b + loop_head[j] * kHeadBytes), value[j] = opaque(b + value_head[j] * kHeadBytes);
      loop_rows[j] = opaque(bt + loop_head[j] * kHeadBytes), value_rows[j] = opaque(bt + value_head[j] * kHeadBytes);
    }
    st = opaque(((l >> 3) * 8 + r) * 512 + (((h * 2 + hs) ^ r) << 4));
    ld = opaque((((l >> 3) & 1) * 8 + r) * 512 + (((h * 2 + ((l >> 4) ^ hs)) ^ r) << 4));
  }
  /// Two sums times f as the score tile keeps them; in bfloat16 f is in the own rows.
  MOTET_DEVICE static uint32_t kept(const float* sums, float f) {
    return kBfloat16 ? pack_float16(sums[0], sums[1]) : pack_float16(sums[0] * f, sums[1] * f);
  }
  /// Scores of head j into the score tile; kTiles even.
  template <int kTiles>
  MOTET_DEVICE void scores(uint32_t to, const uint32_t (*q)[4][4], uint32_t tile, int j) const {
    const uint32_t at = tile + loop[j];
    MOTET_UNROLL
    for (int n = 0; n < 2; ++n) {
      float acc[kTiles][4] = {};
      MOTET_UNROLL
      for (int s = 0; s < 2; ++s) {
        uint32_t k[4];
        load_matrices(k, (at + n * 1024) ^ (s * 64));
        MOTET_UNROLL
        for (int i = 0; i < 2; ++i) {
          MOTET_UNROLL
          for (int m = 0; m < kTiles; ++m) multiply<kBfloat16>(acc[m], q[m][2 * s + i], k[2 * i], k[2 * i + 1]);
        }
      }
      MOTET_UNROLL
      for (int m = 0; m < kTiles; m += 2) {
        uint32_t r[4];
        MOTET_UNROLL
        for (int i = 0; i < 4; ++i) r[i] = kept(acc[m + (i >> 1)] + (i & 1) * 2, kScoreScale);
        store_matrices(to + m * 16 * kRowBytes + (st ^ (n * 16 + j * 32)), r);
      }
    }
  }
  /// Both heads at once: 4 * kTiles independent chains, as kept() has them. `heads`: loop or value.
  template <int kTiles>
  MOTET_DEVICE void scores2(uint32_t to, const uint32_t (*q)[kTiles][4][4], uint32_t tile, const uint32_t* heads,
                            float f) const {
    float acc[2][kTiles][2][4] = {};  // head, rows, columns
    MOTET_UNROLL
    for (int s = 0; s < 2; ++s) {
      MOTET_UNROLL
      for (int n = 0; n < 2; ++n) {
        uint32_t k[2][4];
        MOTET_UNROLL
        for (int j = 0; j < 2; ++j) load_matrices(k[j], (tile + heads[j] + n * 1024) ^ (s * 64));
        MOTET_UNROLL
        for (int i = 0; i < 2; ++i) {
          MOTET_UNROLL
          for (int j = 0; j < 2; ++j) {
            MOTET_UNROLL
            for (int m = 0; m < kTiles; ++m)
              multiply<kBfloat16>(acc[j][m][n], q[j][m][2 * s + i], k[j][2 * i], k[j][2 * i + 1]);
          }
        }
      }
    }
    MOTET_UNROLL
    for (int j = 0; j < 2; ++j) {
      MOTET_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        uint32_t r[4];
        MOTET_UNROLL
        for (int i = 0; i < 4; ++i) r[i] = kept(acc[j][m][i >> 1] + (i & 1) * 2, f);
        store_matrices(to + m * 16 * kRowBytes + (ld ^ (j * 32)), r);
      }
    }
  }
  /// o[own][columns] += U[own][loop] tile[loop][columns] of head j, U of the inputs' type in the score tile; `rows`:
  /// loop_rows or value_rows.
  template <int kTiles>
  MOTET_DEVICE void values(float (*o)[8][4], uint32_t from, uint32_t tile, const uint32_t* rows, int j) const {
    uint32_t a[kTiles][4];
    MOTET_UNROLL
    for (int m = 0; m < kTiles; ++m) load_matrices(a[m], from + m * 16 * kRowBytes + (ld ^ (j * 32)));
    MOTET_UNROLL
    for (int e = 0; e < 4; ++e) {
      uint32_t v[4];
      load_matrices_transposed(v, (tile + rows[j]) ^ (e * 32));
      MOTET_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        multiply<kBfloat16>(o[m][2 * e], a[m], v[0], v[1]);
        multiply<kBfloat16>(o[m][2 * e + 1], a[m], v[2], v[3]);
      }
    }
  }
  /// Stores rows of one head, times f, to [B,rows,heads,width] of the inputs' type.
  template <int kTiles>
  MOTET_DEVICE static void write(const float (*o)[8][4], void* to, int b, int row0, int rows, int heads, int head,
                                 int column0, int width, float f, const Lane& lane) {
    MOTET_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      MOTET_UNROLL
      for (int e = 0; e < 8; ++e) {
        MOTET_UNROLL
        for (int k = 0; k < 2; ++k) {
          const int r = row0 + m * 16 + lane.g + k * 8, column = column0 + e * 8 + lane.c * 2;
          if (r < rows && column < width)
            *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(to) +
                                         ((static_cast<int64_t>(b) * rows + r) * heads + head) * width + column) =
                pack<kBfloat16>(o[m][e][2 * k] * f, o[m][e][2 * k + 1] * f);
        }
      }
    }
  }
};

/// By how much (log2) the sum of a head may lie below the top of its row, which is of all heads. Weights below 2^-126
/// of the top are 0, which this leaves room for; beyond it the general kernels compute the sequence, in both passes.
constexpr float kFarBelow = 96;

/// The rows of a block and the tiles that it walks; long walks come first.
template <bool kOwnKeys, int kRows>
struct Walk {
  const Sight sight;
  int b, own0, first, end;
  Span open;  // tiles that hide nothing
  MOTET_DEVICE explicit Walk(const Args& a) : sight(a, blockIdx.x % a.B), b(blockIdx.x % a.B) {
    const int block = blockIdx.x / a.B, blocks = gridDim.x / a.B;
    own0 = (kOwnKeys ? block : blocks - 1 - block) * kRows;
    const int own1 = own0 + kRows;
    const Span some = kOwnKeys ? sight.queries(own0, own1) : sight.keys(own0, own1);
    const Span all = kOwnKeys ? sight.common_queries(own0, own1) : sight.common_keys(own0, own1);
    first = some.begin / kLoop, end = (some.end + kLoop - 1) / kLoop;
    open = {(all.begin + kLoop - 1) / kLoop, all.end / kLoop};
  }
  MOTET_DEVICE bool mine(int i) const { return i >= first && i < end; }
  /// Whether some pair of tile i may be hidden.
  MOTET_DEVICE bool edge(int i) const { return i < open.begin || i >= open.end; }
  /// Whether an own row sees one of this lane's two of tile i.
  MOTET_DEVICE bool sees_any(int own, int i, const Lane& lane) const {
    const int loop = i * kLoop + lane.g;
    return kOwnKeys ? sight.sees(loop, own) || sight.sees(loop + 8, own)
                    : sight.sees(own, loop) || sight.sees(own, loop + 8);
  }
  /// Takes what an own row does not see out of its logits.
  MOTET_DEVICE void hide(float* d, int own, int i, const Lane& lane) const {
    MOTET_UNROLL
    for (int k = 0; k < 2; ++k) {
      const int loop = i * kLoop + lane.g + k * 8;
      if (kOwnKeys ? sight.sees(loop, own) : sight.sees(own, loop)) continue;
      d[2 * k] = d[2 * k + 1] = d[4 + 2 * k] = d[5 + 2 * k] = -INFINITY;
    }
  }
};

/// One round of copies an interval. One warp waits for them, and the barrier of the block behind shows them to all.
/// Where there are roles a product warp waits, another one asks: mixers are waited for longest. (In log_sums a mixer
/// asks, whose product warps hold Q in all their registers.)
struct Loader {
  uint32_t barrier;
  uint32_t phase = 0;
  MOTET_DEVICE void init(uint32_t at) {
    barrier = at;
    if (threadIdx.x == 0) arrivals_init(barrier);
    block_sync();
  }
  MOTET_DEVICE void arrived() {
    arrivals_wait(barrier, phase);
    phase ^= 1;
  }
};
template <int kThreads>
MOTET_DEVICE void load_block(uint32_t to, const char* from, int bytes) {
  for (int x = threadIdx.x * 16; x < bytes; x += kThreads * 16)
    store16(to + x, *reinterpret_cast<const uint4*>(from + x));
}
/// n numbers x as `of` - x: what the sums of mixers begin with.
template <int kThreads>
MOTET_DEVICE void load_differences(uint32_t to, const float* from, int n, float of) {
  for (int x = threadIdx.x; x < n; x += kThreads) store4(to + x * 4, of - from[x]);
}

}  // namespace motet::cuda::tensor
