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
    for (; row + kMixRows <= t.num_rows; row += kMixRows)
      factored_apply_rows<kMixRows, kQ, kK, kKeys>(mix, t, row, column);
    if (kMixRows > 1 && row < t.num_rows) factored_apply_rows<1, kQ, kK, kKeys>(mix, t, row, column);
  }
}

// Where hidden sums of a pair of rows stand in L1: [row][vector][hq kQ, hk kK, gq kQ, gk kK][lanes].
template <int kQ, int kK>
HWY_INLINE float* hidden_of(float* hidden, int row, int vector) {
  return hidden + (row * (kBackwardKeys / kLanes) + vector) * 2 * (kQ + kK) * kLanes;
}

// The gradient of a mix's output, through the softmax behind it: dL = P / Z (dP - D / Z), which is stored.
template <bool kSoftmax>
HWY_INLINE Vec output_gradient(float* grad, const SoftmaxTile& softmax, int64_t at, int64_t pair) {
  const Vec g = load(grad + at);
  if constexpr (!kSoftmax) return g;
  const Vec weight = hn::Mul(load(softmax.weights + at), set(softmax.inverse[pair]));
  const Vec through = hn::Mul(weight, hn::Sub(g, set(softmax.sums[pair])));
  store(grad + at, through);
  return through;
}

// Hidden sums of kMixRows rows, from `row` of the pair on, and kBackVectors vectors: those of the inputs, of the
// gradients or of both.
template <int kQ, int kK, bool kSoftmax, bool kInputs, bool kGradients>
HWY_INLINE void hidden_sums(const Mix& mix, const MixBackTile t, int pair_row, int row, int vector, float* hidden) {
  constexpr int kKeys = kBackwardKeys, kRowNumbers = 2 * kQ + 1, kKeyNumbers = 2 * kK + 1;
  constexpr int kR = kMixRows, kV = kBackVectors;
  const int heads = mix.in;
  const int64_t head = int64_t{kRows} * kKeys, band = int64_t{kRowNumbers} * heads;
  const SoftmaxTile softmax = kSoftmax ? *t.softmax : SoftmaxTile{};
  const float* const q = t.rows + (pair_row + row) * band;
  const float* const k = t.keys + vector * kLanes;
  const int64_t place = (pair_row + row) * kKeys + vector * kLanes, pair = pair_place(pair_row, 0, heads) + row;
  Vec hq[kR][kV][kQ + 1], hk[kR][kV][kK + 1], gq[kR][kV][kQ + 1], gk[kR][kV][kK + 1];
  MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) hq[i][j][r] = gq[i][j][r] = zero();
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) hk[i][j][r] = gk[i][j][r] = zero();
  }
  for (int h = 0; h < heads; ++h) {
    const float* const numbers = q + h * kRowNumbers;  // of the first row
    const float* const key = k + h * kKeyNumbers * kKeys;
    Vec x[kR][kV], g[kR][kV];
    MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
      const int64_t at = place + h * head + i * kKeys + j * kLanes;
      if (kInputs) x[i][j] = load(t.in + at);
      if (kGradients) g[i][j] = output_gradient<kSoftmax>(t.grad, softmax, at, pair + 2 * h + i);
    }
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
      const Vec down = load(key + r * kKeys + j * kLanes), up = load(key + (kK + r) * kKeys + j * kLanes);
      MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
        if (kInputs) hk[i][j][r] = fma(x[i][j], down, hk[i][j][r]);
        if (kGradients) gk[i][j][r] = fma(g[i][j], up, gk[i][j][r]);
      }
    }
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const Vec down = set(numbers[i * band + r]), up = set(numbers[i * band + kQ + r]);
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
        if (kInputs) hq[i][j][r] = fma(x[i][j], down, hq[i][j][r]);
        if (kGradients) gq[i][j][r] = fma(g[i][j], up, gq[i][j][r]);
      }
    }
  }
  MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) {
    float* const to = hidden_of<kQ, kK>(hidden, row + i, vector + j);
    MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) {
      if (kInputs) store(to + r * kLanes, hq[i][j][r]);
      if (kGradients) store(to + (kQ + kK + r) * kLanes, gq[i][j][r]);
    }
    MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) {
      if (kInputs) store(to + (kQ + r) * kLanes, hk[i][j][r]);
      if (kGradients) store(to + (2 * kQ + kK + r) * kLanes, gk[i][j][r]);
    }
  }
}

// Hidden sums of a pair of rows, all vectors. On the way takes the gradient through the softmax behind a pre mix.
template <int kQ, int kK, bool kSoftmax>
HWY_INLINE void factored_hidden(const Mix& mix, const MixBackTile t, int pair_row, float* hidden) {
  for (int vector = 0; vector < t.columns / kLanes; vector += kBackVectors)
    for (int row = 0; row < 2; row += kMixRows)
      if constexpr (kMixRows == 2) {
        hidden_sums<kQ, kK, kSoftmax, true, true>(mix, t, pair_row, row, vector, hidden);
      } else {
        hidden_sums<kQ, kK, kSoftmax, true, false>(mix, t, pair_row, row, vector, hidden);
        hidden_sums<kQ, kK, kSoftmax, false, true>(mix, t, pair_row, row, vector, hidden);
      }
}

// Gradients of one head and kMixRows rows: dx, the output again, and what is summed over columns (unreduced,
// [row][down kQ, up kQ, diagonal, row sum]). `hidden` are the sums of these rows.
template <int kQ, int kK, bool kPost>
HWY_INLINE void factored_head_rows(const Mix& mix, const MixBackTile t, int row, int h, float* hidden,
                                   Vec (*sum)[2 * kQ + 2]) {
  constexpr int kKeys = kBackwardKeys, kRowNumbers = 2 * kQ + 1, kKeyNumbers = 2 * kK + 1, kR = kMixRows;
  const int64_t band = int64_t{kRowNumbers} * mix.in, place = (h * int64_t{kRows} + row) * kKeys;
  const float* const q = t.rows + row * band + h * kRowNumbers;
  Vec total[kR][2 * kQ + 2];
  MOTET_UNROLL(2)
  for (int i = 0; i < kR; ++i) MOTET_UNROLL(6) for (int n = 0; n < 2 * kQ + 2; ++n) total[i][n] = zero();
  for (int j = 0; j < t.columns / kLanes; ++j) {
    const float* const k = t.keys + h * kKeyNumbers * kKeys + j * kLanes;
    float* const gk = t.key_gradients + h * kKeyNumbers * kKeys + j * kLanes;
    Vec weight[2 * kK + 1], gradient[2 * kK + 1];
    if constexpr (kK > 0) MOTET_UNROLL(5) for (int n = 0; n < 2 * kK + 1; ++n) {
        weight[n] = load(k + n * kKeys);
        gradient[n] = load(gk + n * kKeys);
      }
    MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const float* const z = hidden_of<kQ, kK>(hidden, i, j);
      const float* const numbers = q + i * band;
      const int64_t at = place + i * kKeys + j * kLanes;
      const Vec x = load(t.in + at), g = load(t.grad + at);
      const Vec diagonal = set(numbers[2 * kQ]);
      const Vec scale = kK ? hn::Add(diagonal, weight[2 * kK]) : diagonal;
      Vec dx = hn::Mul(g, scale), y = hn::Mul(x, scale);
      MOTET_UNROLL(2) for (int r = 0; r < kQ; ++r) {
        const Vec hq = load(z + r * kLanes), gq = load(z + (kQ + kK + r) * kLanes);
        dx = fma(gq, set(numbers[r]), dx);
        if (kPost) y = fma(hq, set(numbers[kQ + r]), y);
        total[i][r] = fma(x, gq, total[i][r]);
        total[i][kQ + r] = fma(g, hq, total[i][kQ + r]);
      }
      MOTET_UNROLL(2) for (int r = 0; r < kK; ++r) {
        const Vec hk = load(z + (kQ + r) * kLanes), g_up = load(z + (2 * kQ + kK + r) * kLanes);
        dx = fma(g_up, weight[r], dx);
        if (kPost) y = fma(hk, weight[kK + r], y);
        gradient[r] = fma(x, g_up, gradient[r]);
        gradient[kK + r] = fma(g, hk, gradient[kK + r]);
      }
      const Vec product = hn::Mul(x, g);
      total[i][2 * kQ] = hn::Add(total[i][2 * kQ], product);
      if (kK) gradient[2 * kK] = hn::Add(gradient[2 * kK], product);
      if (kPost) {
        total[i][2 * kQ + 1] = fma(x, dx, total[i][2 * kQ + 1]);
        store(t.out + at, y);
      }
      store(t.dx + at, dx);
    }
    if constexpr (kK > 0) MOTET_UNROLL(5) for (int n = 0; n < 2 * kK + 1; ++n) store(gk + n * kKeys, gradient[n]);
  }
  MOTET_UNROLL(2)
  for (int i = 0; i < kR; ++i) MOTET_UNROLL(6) for (int n = 0; n < 2 * kQ + 2; ++n) sum[i][n] = total[i][n];
}

// The same of both rows of a pair.
template <int kQ, int kK, bool kPost>
HWY_INLINE void factored_head(const Mix& mix, const MixBackTile t, int row, int h, float* hidden,
                              Vec (&sum)[2][2 * kQ + 2]) {
  const int64_t next = (h * int64_t{kRows} + row + 2) * kBackwardKeys;  // pair of rows
  for (int i = 0; i < 2 * kBackwardKeys; i += 16) {
    prefetch_l1(t.in + next + i);
    prefetch_l1(t.grad + next + i);
    if (!kPost) prefetch_l1(t.softmax->weights + next + i);
  }
  MOTET_UNROLL(2)
  for (int first = 0; first < 2; first += kMixRows)
    factored_head_rows<kQ, kK, kPost>(mix, t, row + first, h, hidden_of<kQ, kK>(hidden, first, 0), sum + first);
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
