#pragma once
#include "motet/attention/cuda/mixing-inl.h"

// The general kernels: every mix, any numbers of heads and widths, float32 arithmetic throughout, whatever the types of
// the inputs. A block of 256 threads owns 16 rows (queries, or keys in the second half of the backward pass) and walks
// tiles of kLoop rows of the other side. A tile holds all heads: [head][own][loop] in shared memory.
namespace motet::cuda::general {

inline constexpr int kChunk = 16,
                     kPitch = kChunk + 4;         // columns of a product that a warp stages; floats of a staged row
inline constexpr int kUnits = 32, kColumns = 32;  // a block sums at most 32 units: 32 columns of one head
inline constexpr int kUnitsPerWarp = kUnits / kWarps;

/// What a launch adds to the problem. Workspace arrays are float32.
struct Call {
  Args a;
  const int* only;     // [B]: sequences to work on; null: all
  int heads, ranks;    // the most of any stage, and of both sides of a mix: sizes of buffers
  int parts;           // into which the walks over keys of the forward pass are cut
  float2* stats;       // [parts][B,Ha,T]: maximum and sum of exp(L - maximum); {lse, 1} where an lse was given
  float* lse;          // [B,Ha,T]
  void* out;           // [B,T,Ho,E], of q's type
  float* partial_out;  // [parts][B,T,Ho,E], instead of out when there are parts
  float* row_sums;     // [B,Ha,T]: sum over keys of P dP
  const float *scores, *dmixed;  // [B,Hs,T,S] q . k and [B,Ho,T,S] dout . v, where they were made elsewhere
  void *weights, *dscores;       // [B,Ho,T,S] and [B,Hs,T,S] of q's type: what is multiplied elsewhere
  Gradients to;
  float *weight_sums_pre, *weight_sums_post;  // [blocks][N,M]
};

/// What part blockIdx.z of the keys adds up to for a row: the largest logit, and the sum of exp(L - top).
MOTET_DEVICE void keep_stats(const Call& c, int b, int head, int t, float top, float sum) {
  const int64_t rows = static_cast<int64_t>(c.a.B) * c.a.softmax_heads * c.a.T;
  const int64_t at = (static_cast<int64_t>(b) * c.a.softmax_heads + head) * c.a.T + t;
  if (c.stats) c.stats[blockIdx.z * rows + at] = {top, sum};
  if (c.lse && c.parts == 1) c.lse[at] = sum == 0 ? -INFINITY : top + logf(sum);
}

/// A tile whose products are made by its block.
template <bool kByKey, int kLoopRows>
struct Products : MixedTile<kByKey, kLoopRows, 16> {
  using Base = MixedTile<kByKey, kLoopRows, 16>;
  using Base::a, Base::sight, Base::b, Base::own0, Base::loop0, Base::thread, Base::warp, Base::lane, Base::seen,
      Base::kPairs, Base::kOwnKeys, Base::kOwn, Base::kLoop;
  static constexpr int kStage = (kOwn + kLoop) * kPitch;  // floats that a warp stages
  static constexpr int kFloats = kWarps * kStage;         // of shared memory, behind `seen`
  Buffer stage;

  MOTET_DEVICE explicit Products(const Call& c)
      : Base(c.a), stage{static_cast<uint32_t>((kPairs + warp * kStage) * 4)} {}

  MOTET_DEVICE void scores(Buffer to) { products(to, a.q, a.k, a.key_of, a.score_heads, a.D, a.scale); }
  MOTET_DEVICE void output_gradients(Buffer to) { products(to, a.dout, a.v, a.value_of, a.output_heads, a.E, 1); }

  /// to[head][own][loop] = factor * rows of queries . rows of keys; 0 where a pair is not seen. queries
  /// [B,T,heads,width], keys [B,S,.,width], of which head h reads head of[h].
  MOTET_DEVICE void products(Buffer to, const plain::Operand& queries, const plain::Operand& keys, const uint8_t* of,
                             int heads, int width, float factor) {
    constexpr int kPer = kLoop / 4;
    const int i = lane / 4, j = lane % 4 * kPer;
    const Buffer rows = stage, columns = {stage.at + kOwn * kPitch * 4};
    for (int h = warp; h < heads; h += kWarps) {
      float sum[2][kPer] = {};
      for (int c0 = 0; c0 < width; c0 += kChunk) {
        warp_sync();
        fill(rows, kOwnKeys ? keys : queries, kOwnKeys ? of[h] : h, own0, kOwn, kOwnKeys, c0, width);
        fill(columns, kOwnKeys ? queries : keys, kOwnKeys ? h : of[h], loop0, kLoop, !kOwnKeys, c0, width);
        warp_sync();
        MOTET_UNROLL
        for (int c = 0; c < kChunk; c += 4) {
          const float4 r0 = rows.get4(i * kPitch + c), r1 = rows.get4((i + 8) * kPitch + c);
          MOTET_UNROLL
          for (int n = 0; n < kPer; ++n) {
            const float4 k = columns.get4((j + n) * kPitch + c);
            sum[0][n] = fma4(r0, k, sum[0][n]);
            sum[1][n] = fma4(r1, k, sum[1][n]);
          }
        }
      }
      MOTET_UNROLL
      for (int half = 0; half < 2; ++half) {
        MOTET_UNROLL
        for (int n = 0; n < kPer; ++n) {
          const int pair = (i + 8 * half) * kLoop + j + n;
          to.set(h * kPairs + pair, seen.get(pair) ? sum[half][n] * factor : 0.f);
        }
      }
    }
  }

  /// sum[unit][own] += tile[head][own][loop] . rows [loop][columns of the unit]. Units of this block are those of the
  /// `chunk`-th kUnits of [heads of the result][width / 32]; this warp's are warp, warp + 8, ... kOwnKeys: the result
  /// has the stored heads, each the sum over the heads of the tile that read it.
  struct Sums {
    float of[kUnitsPerWarp][kOwn];
  };
  MOTET_DEVICE void values(Sums& sums, Buffer tile, const plain::Operand& rows, const uint8_t* of, int tile_heads,
                           int result_heads, int width, int chunk) const {
    const int blocks = (width + kColumns - 1) / kColumns;
    MOTET_UNROLL
    for (int u = 0; u < kUnitsPerWarp; ++u) {
      const int unit = chunk * kUnits + u * kWarps + warp, result = unit / blocks,
                column = unit % blocks * kColumns + lane;
      if (result >= result_heads) continue;
      for (int h = kOwnKeys ? 0 : result; h < (kOwnKeys ? tile_heads : result + 1); ++h) {
        if (kOwnKeys && of[h] != result) continue;
        for (int l = 0; l < kLoop; l += 4) {
          float4 v;
          v.x = value(rows, kOwnKeys ? h : of[h], loop0 + l, column, width);
          v.y = value(rows, kOwnKeys ? h : of[h], loop0 + l + 1, column, width);
          v.z = value(rows, kOwnKeys ? h : of[h], loop0 + l + 2, column, width);
          v.w = value(rows, kOwnKeys ? h : of[h], loop0 + l + 3, column, width);
          MOTET_UNROLL
          for (int r = 0; r < kOwn; ++r) sums.of[u][r] = fma4(tile.get4(h * kPairs + r * kLoop + l), v, sums.of[u][r]);
        }
      }
    }
  }
  /// Stores what `values` summed, times factor, to [B, rows, heads, width] of the type.
  MOTET_DEVICE void write(const Sums& sums, void* to, plain::Type type, int rows, int heads, int width, int chunk,
                          float factor) const {
    const int blocks = (width + kColumns - 1) / kColumns;
    MOTET_UNROLL
    for (int u = 0; u < kUnitsPerWarp; ++u) {
      const int unit = chunk * kUnits + u * kWarps + warp, head = unit / blocks,
                column = unit % blocks * kColumns + lane;
      if (head >= heads || column >= width) continue;
      MOTET_UNROLL
      for (int r = 0; r < kOwn; ++r)
        if (own0 + r < rows)
          store(to, type, ((static_cast<int64_t>(b) * rows + own0 + r) * heads + head) * width + column,
                sums.of[u][r] * factor);
    }
  }

 private:
  MOTET_DEVICE static float fma4(const float4& x, const float4& y, float sum) {
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
  }
  MOTET_DEVICE bool readable(int row, bool is_key) const { return is_key ? sight.reads(row) : row < a.T; }
  MOTET_DEVICE float value(const plain::Operand& rows, int head, int row, int column, int width) const {
    return column < width && readable(row, !kOwnKeys) ? load(rows, b, row, head, column) : 0.f;
  }
  // This warp's copy of kChunk columns of some rows, 0 beyond the width and where nothing may be read.
  MOTET_DEVICE void fill(Buffer to, const plain::Operand& from, int head, int row0, int rows, bool are_keys, int c0,
                         int width) const {
    for (int i = lane; i < rows * kChunk; i += 32) {
      const int r = i / kChunk, c = i % kChunk;
      to.set(r * kPitch + c,
             c0 + c < width && readable(row0 + r, are_keys) ? load(from, b, row0 + r, head, c0 + c) : 0.f);
    }
  }
};

/// One tile of a block, and what mixes make of its products, which a class of the shape of Products has.
template <class Made>
struct Tile : Made {
  using Base = Made;
  using Base::a, Base::b, Base::thread, Base::seen, Base::hidden, Base::back, Base::kPairs, Base::query, Base::mixed;
  Buffer x, w, g, y;

  /// Bytes of shared memory with the first `buffers` of x, w, g, y.
  static int64_t bytes(const Call& c, int buffers) {
    return 4 * (Base::kFloats + int64_t{kPairs} * (1 + buffers * c.heads + 2 * c.ranks));
  }

  MOTET_DEVICE explicit Tile(const Call& c) : Base(c) {
    const int heads = c.heads, ranks = c.ranks;
    hidden = {(kPairs + Base::kFloats) * 4};
    back = {hidden.at + ranks * kPairs * 4};
    x = {back.at + ranks * kPairs * 4};
    w = {x.at + heads * kPairs * 4};
    g = {w.at + heads * kPairs * 4};
    y = {g.at + heads * kPairs * 4};
  }

  /// Whether nobody asked for this block's sequence.
  static MOTET_DEVICE bool left_out(const Call& c) { return c.only && !c.only[blockIdx.x % c.a.B]; }

  /// Logits of the tile, 0 where a pair is not seen; scores stay in x.
  MOTET_DEVICE Buffer logits() {
    Base::scores(x);
    block_sync();
    return mixed(a.pre, x, w, 0, a.softmax_heads);
  }
  /// P in w, from the stats of each row: exp(L - maximum) / sum.
  MOTET_DEVICE void weights(const float2* stats) {
    const Buffer from = logits();
    for (int item = thread; item < a.softmax_heads * kPairs; item += kThreads) {
      const int h = item / kPairs, pair = item % kPairs;
      float p = 0;
      if (seen.get(pair)) {
        const float2 row = stats[(static_cast<int64_t>(b) * a.softmax_heads + h) * a.T + query(pair)];
        p = expf(from.get(item) - row.x) / row.y;
      }
      w.set(item, p);
    }
    block_sync();
  }
};

}  // namespace motet::cuda::general
