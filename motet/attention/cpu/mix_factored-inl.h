// The mix of DCMHA: a diagonal (identity and gates) and low rank, by query and by key.
//
//   y_m = x_m (diagonal[t,m] + gate[s,m]) + sum_r (sum_n x_n query_down[t,r,n]) query_up[t,r,m]
//                                         + sum_r (sum_n x_n key_down[s,r,n]) key_up[s,r,m]
//
// Row band of a sub-block: [8][heads][down kQ, up kQ, diagonal]. Key band: [heads][down kK, up kK, gate][keys]. A
// head's numbers stand together, so that a loop over heads moves two pointers and all else is a constant distance from
// them.
#if defined(MOTET_CPU_MIX_FACTORED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_MIX_FACTORED_INL_H
#undef MOTET_CPU_MIX_FACTORED_INL_H
#else
#define MOTET_CPU_MIX_FACTORED_INL_H
#endif

#include "motet/attention/cpu/mix.h"
#include "motet/attention/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

// kR rows x kMixVectors of all heads. Hidden sums stay in registers between the two loops over heads.
template <int kR, int kQ, int kK, int kKeys>
HWY_INLINE void factored_apply_rows(const Mix& mix, const MixTile t, int row, int column) {
  constexpr int kV = kMixVectors, kRowNumbers = 2 * kQ + 1, kKeyNumbers = 2 * kK + 1;
  const int heads = mix.in;
  const int64_t head = int64_t{kRows} * kKeys, band = int64_t{kRowNumbers} * heads;
  const float* in = t.in + row * kKeys + column;
  float* out = t.out + row * kKeys + column;
  const float* const q = t.rows + row * band;
  const float* k = t.keys + column;
  Vec hq[kR][kV][kQ + 1], hk[kR][kV][kK + 1];  // one more than used: arrays of size 0 are not C++
  MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) hq[i][j][r] = zero();
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) hk[i][j][r] = zero();
  }
  for (int h = 0; h < heads; ++h) {
    const float* const numbers = q + h * kRowNumbers;  // of the first row
    const float* const key = k + h * kKeyNumbers * kKeys;
    Vec x[kR][kV];
    MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
      x[i][j] = load(in + h * head + i * kKeys + j * kLanes);
      if (t.factor) {
        x[i][j] = hn::Mul(x[i][j], set(t.factor[h * kRows + row + i]));
        store(out + h * head + i * kKeys + j * kLanes, x[i][j]);
      }
    }
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
      const Vec down = load(key + r * kKeys + j * kLanes);
      MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) hk[i][j][r] = fma(x[i][j], down, hk[i][j][r]);
    }
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const Vec down = set(numbers[i * band + r]);
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) hq[i][j][r] = fma(x[i][j], down, hq[i][j][r]);
    }
  }
  if (t.factor) in = out;
  for (int h = 0; h < heads; ++h) {
    const float* const numbers = q + h * kRowNumbers;  // of the first row
    const float* const key = k + h * kKeyNumbers * kKeys;
    Vec y[kR][kV];
    MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const Vec diagonal = set(numbers[i * band + 2 * kQ]);
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
        const Vec scale = kK ? hn::Add(diagonal, load(key + 2 * kK * kKeys + j * kLanes)) : diagonal;
        y[i][j] = hn::Mul(load(in + h * head + i * kKeys + j * kLanes), scale);
      }
    }
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
      const Vec up = load(key + (kK + r) * kKeys + j * kLanes);
      MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) y[i][j] = fma(hk[i][j][r], up, y[i][j]);
    }
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const Vec up = set(numbers[i * band + kQ + r]);
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) y[i][j] = fma(hq[i][j][r], up, y[i][j]);
    }
    MOTET_UNROLL(2)
    for (int i = 0; i < kR; ++i)
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) store(out + h * head + i * kKeys + j * kLanes, y[i][j]);
  }
}

template <int kQ, int kK, int kKeys>
HWY_NOINLINE void factored_apply(const Mix& mix, const MixTile& tile) {
  const MixTile t = tile;
  for (int column = 0; column < t.columns; column += kMixVectors * kLanes) {
    int row = 0;
    for (; row + 2 <= t.num_rows; row += 2) factored_apply_rows<2, kQ, kK, kKeys>(mix, t, row, column);
    if (row < t.num_rows) factored_apply_rows<1, kQ, kK, kKeys>(mix, t, row, column);
  }
}

// Hidden sums of a pair of rows, all vectors, kept in L1: [row][vector][hq kQ, hk kK, gq kQ, gk kK][lanes]. On the way
// takes the gradient through the softmax behind a pre mix.
template <int kQ, int kK, bool kSoftmax>
HWY_INLINE void factored_hidden(const Mix& mix, const MixBackTile t, int row, float* hidden) {
  constexpr int kKeys = kBackwardKeys, kSums = 2 * (kQ + kK), kRowNumbers = 2 * kQ + 1, kKeyNumbers = 2 * kK + 1;
  const int heads = mix.in;
  const int64_t head = int64_t{kRows} * kKeys, band = int64_t{kRowNumbers} * heads;
  const float* q[2] = {t.rows + row * band, t.rows + (row + 1) * band};
  for (int j = 0; j < t.columns / kLanes; ++j) {
    const float* in = t.in + row * kKeys + j * kLanes;
    float* grad = t.grad + row * kKeys + j * kLanes;
    const float* k = t.keys + j * kLanes;
    const int64_t pair = pair_place(row, 0, heads);
    const float* weights = kSoftmax ? t.softmax->weights + row * kKeys + j * kLanes : nullptr;
    const float* inverse = kSoftmax ? t.softmax->inverse + pair : nullptr;
    const float* sums = kSoftmax ? t.softmax->sums + pair : nullptr;
    Vec hq[2][kQ + 1], hk[2][kK + 1], gq[2][kQ + 1], gk[2][kK + 1];
    MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
      MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) hq[i][r] = gq[i][r] = zero();
      MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) hk[i][r] = gk[i][r] = zero();
    }
    for (int h = 0; h < heads; ++h) {
      const float* const numbers[2] = {q[0] + h * kRowNumbers, q[1] + h * kRowNumbers};
      const float* const key = k + h * kKeyNumbers * kKeys;
      Vec x[2], g[2];
      MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
        x[i] = load(in + h * head + i * kKeys);
        g[i] = load(grad + h * head + i * kKeys);
        if constexpr (kSoftmax) {
          const Vec weight = hn::Mul(load(weights + h * head + i * kKeys), set(inverse[2 * h + i]));
          g[i] = hn::Mul(weight, hn::Sub(g[i], set(sums[2 * h + i])));
          store(grad + h * head + i * kKeys, g[i]);
        }
      }
      MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) {
        const Vec down = load(key + r * kKeys), up = load(key + (kK + r) * kKeys);
        MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
          hk[i][r] = fma(x[i], down, hk[i][r]);
          gk[i][r] = fma(g[i], up, gk[i][r]);
        }
      }
      MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
        hq[i][r] = fma(x[i], set(numbers[i][r]), hq[i][r]);
        gq[i][r] = fma(g[i], set(numbers[i][kQ + r]), gq[i][r]);
      }
    }
    MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
      float* to = hidden + ((i * (kKeys / kLanes) + j) * kSums) * kLanes;
      MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) {
        store(to + r * kLanes, hq[i][r]);
        store(to + (kQ + kK + r) * kLanes, gq[i][r]);
      }
      MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) {
        store(to + (kQ + r) * kLanes, hk[i][r]);
        store(to + (2 * kQ + kK + r) * kLanes, gk[i][r]);
      }
    }
  }
}

// Gradients of one head and a pair of rows: dx, the output again, and what is summed over columns (returned unreduced,
// [row][down kQ, up kQ, diagonal, row sum]).
template <int kQ, int kK, bool kPost>
HWY_INLINE void factored_head(const Mix& mix, const MixBackTile t, int row, int h, const float* hidden,
                              Vec (&sum)[2][2 * kQ + 2]) {
  constexpr int kKeys = kBackwardKeys, kSums = 2 * (kQ + kK), kRowNumbers = 2 * kQ + 1, kKeyNumbers = 2 * kK + 1;
  const int64_t band = int64_t{kRowNumbers} * mix.in, place = (h * int64_t{kRows} + row) * kKeys;
  const float* const q[2] = {t.rows + row * band + h * kRowNumbers, t.rows + (row + 1) * band + h * kRowNumbers};
  MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) MOTET_UNROLL(6) for (int n = 0; n < 2 * kQ + 2; ++n) sum[i][n] = zero();
  for (int i = 0; i < 2 * kKeys; i += 16) {  // the next pair of rows
    prefetch_l1(t.in + place + 2 * kKeys + i);
    prefetch_l1(t.grad + place + 2 * kKeys + i);
    if (!kPost) prefetch_l1(t.softmax->weights + place + 2 * kKeys + i);
  }
  for (int j = 0; j < t.columns / kLanes; ++j) {
    const float* const k = t.keys + h * kKeyNumbers * kKeys + j * kLanes;
    float* const gk = t.key_gradients + h * kKeyNumbers * kKeys + j * kLanes;
    Vec weight[2 * kK + 1], gradient[2 * kK + 1];
    if constexpr (kK > 0) MOTET_UNROLL(5) for (int n = 0; n < 2 * kK + 1; ++n) {
        weight[n] = load(k + n * kKeys);
        gradient[n] = load(gk + n * kKeys);
      }
    MOTET_UNROLL(2) for (int i = 0; i < 2; ++i) {
      const float* z = hidden + ((i * (kKeys / kLanes) + j) * kSums) * kLanes;
      const int64_t at = place + i * kKeys + j * kLanes;
      const Vec x = load(t.in + at), g = load(t.grad + at);
      const Vec diagonal = set(q[i][2 * kQ]);
      const Vec scale = kK ? hn::Add(diagonal, weight[2 * kK]) : diagonal;
      Vec dx = hn::Mul(g, scale), y = hn::Mul(x, scale);
      MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) {
        const Vec hq = load(z + r * kLanes), gq = load(z + (kQ + kK + r) * kLanes);
        dx = fma(gq, set(q[i][r]), dx);
        if (kPost) y = fma(hq, set(q[i][kQ + r]), y);
        sum[i][r] = fma(x, gq, sum[i][r]);
        sum[i][kQ + r] = fma(g, hq, sum[i][kQ + r]);
      }
      MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) {
        const Vec hk = load(z + (kQ + r) * kLanes), g_up = load(z + (2 * kQ + kK + r) * kLanes);
        dx = fma(g_up, weight[r], dx);
        if (kPost) y = fma(hk, weight[kK + r], y);
        gradient[r] = fma(x, g_up, gradient[r]);
        gradient[kK + r] = fma(g, hk, gradient[kK + r]);
      }
      const Vec product = hn::Mul(x, g);
      sum[i][2 * kQ] = hn::Add(sum[i][2 * kQ], product);
      if (kK) gradient[2 * kK] = hn::Add(gradient[2 * kK], product);
      if (kPost) {
        sum[i][2 * kQ + 1] = fma(x, dx, sum[i][2 * kQ + 1]);
        store(t.out + at, y);
      }
      store(t.dx + at, dx);
    }
    if constexpr (kK > 0) MOTET_UNROLL(5) for (int n = 0; n < 2 * kK + 1; ++n) store(gk + n * kKeys, gradient[n]);
  }
}

// Adds the sums of kLanes / 2 heads, each of a pair of rows, to a list [row pair][heads][2].
HWY_INLINE void add_reduced(const Vec* pairs, float* list) {
  store(list, hn::Add(load(list), reduce_pairs(pairs, SumOf())));
}

// A post mix gives its output again and row sums; a pre mix begins behind the softmax.
template <int kQ, int kK, bool kPost>
HWY_INLINE void factored_backward_rows(const Mix& mix, const MixBackTile t) {
  constexpr int kNumbers = 2 * kQ + 2, kGroup = kLanes / 2;  // heads reduced together
  const int heads = mix.in;
  const int64_t list = kRows * padded_heads(heads);
  for (int row = 0; row < t.num_rows; row += 2) {
    factored_hidden<kQ, kK, !kPost>(mix, t, row, t.scratch);
    HWY_ALIGN Vec reduced[kNumbers][kGroup];
    for (int h = 0; h < heads; ++h) {
      Vec sum[2][kNumbers];
      factored_head<kQ, kK, kPost>(mix, t, row, h, t.scratch, sum);
      const int slot = h % kGroup;
      MOTET_UNROLL(6)
      for (int n = 0; n < kNumbers; ++n) reduced[n][slot] = reduce_two(sum[0][n], sum[1][n], SumOf());
      if (slot != kGroup - 1 && h != heads - 1) continue;
      for (int rest = slot + 1; rest < kGroup; ++rest)
        for (int n = 0; n < kNumbers; ++n) reduced[n][rest] = zero();
      const int64_t at = pair_place(row, h - slot, heads);
      for (int n = 0; n < 2 * kQ + 1; ++n) add_reduced(reduced[n], t.row_gradients + n * list + at);
      if (kPost) add_reduced(reduced[2 * kQ + 1], t.row_sums + at);
    }
  }
}

template <int kQ, int kK>
HWY_NOINLINE void factored_backward(const Mix& mix, const MixBackTile& tile) {
  const MixBackTile t = tile;
  if (t.out)
    factored_backward_rows<kQ, kK, true>(mix, t);
  else
    factored_backward_rows<kQ, kK, false>(mix, t);
}

template <int kQ, int kK>
void set_factored(Mix& mix) {
  mix.query_ranks = kQ, mix.key_ranks = kK;
  mix.row_band = int64_t{kRows} * (2 * kQ + 1) * mix.in;
  mix.key_numbers = kK ? int64_t{2 * kK + 1} * mix.in : 0;
  mix.row_gradients = int64_t{2 * kQ + 1} * kRows * padded_heads(mix.in);
  mix.scratch = int64_t{2} * kBackwardKeys * 2 * (kQ + kK);
  mix.apply_wide = factored_apply<kQ, kK, kForwardKeys>;
  mix.apply_narrow = factored_apply<kQ, kK, kBackwardKeys>;
  mix.backward = factored_backward<kQ, kK>;
}

/// Rank 1 is kept as rank 2 with zeros.
inline void set_factored_mix(Mix& mix) {
  const HeadMix& parts = *mix.parts;
  const bool query = parts.has(kQueryDown), key = parts.has(kKeyDown) || parts.has(kKeyGate);
  if (query && key)
    set_factored<2, 2>(mix);
  else if (query)
    set_factored<2, 0>(mix);
  else if (key)
    set_factored<0, 2>(mix);
  else
    set_factored<0, 0>(mix);
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
