// The mix of differential attention: y_i = x_2i - lambda[t,i] x_2i+1. Row band: [8][pairs] of lambda. No key band.
#if defined(MOTET_CPU_MIX_PAIRS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_MIX_PAIRS_INL_H
#undef MOTET_CPU_MIX_PAIRS_INL_H
#else
#define MOTET_CPU_MIX_PAIRS_INL_H
#endif

#include "motet/attention/cpu/mix.h"
#include "motet/attention/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

template <int kKeys>
HWY_NOINLINE void pairs_apply(const Mix& mix, const MixTile& tile) {
  const MixTile t = tile;
  constexpr int64_t head = int64_t{kRows} * kKeys;
  for (int i = 0; i < mix.out; ++i)  // ascending: in place, y_i lands on an x that has been read
    for (int r = 0; r < t.num_rows; ++r) {
      const float* x = t.in + 2 * i * head + r * kKeys;
      float* y = t.out + i * head + r * kKeys;
      const float first = t.factor ? t.factor[2 * i * kRows + r] : 1;
      const float second = -t.rows[r * mix.out + i] * (t.factor ? t.factor[(2 * i + 1) * kRows + r] : 1);
      const Vec a = set(first), b = set(second);
      for (int j = 0; j < t.columns; j += kLanes) store(y + j, fma(a, load(x + j), hn::Mul(b, load(x + head + j))));
    }
}

HWY_NOINLINE void pairs_backward(const Mix& mix, const MixBackTile& tile) {
  const MixBackTile t = tile;
  constexpr int kKeys = kBackwardKeys;
  constexpr int64_t head = int64_t{kRows} * kKeys;
  for (int i = 0; i < mix.out; ++i) {
    HWY_ALIGN Vec sums[2 * kRows];
    for (int r = 0; r < kRows; ++r) {
      sums[2 * r] = sums[2 * r + 1] = zero();
      if (r >= t.num_rows) continue;
      const int64_t at = 2 * i * head + r * kKeys;
      const Vec lambda = set(-t.rows[r * mix.out + i]);
      for (int j = 0; j < t.columns; j += kLanes) {
        const Vec x0 = load(t.in + at + j), x1 = load(t.in + at + head + j);
        const Vec g = load(t.grad + i * head + r * kKeys + j);
        if (t.out) store(t.out + i * head + r * kKeys + j, fma(lambda, x1, x0));
        sums[2 * r] = fma(x0, g, sums[2 * r]);
        sums[2 * r + 1] = fma(x1, g, sums[2 * r + 1]);
        store(t.dx + at + j, g);
        store(t.dx + at + head + j, hn::Mul(lambda, g));
      }
    }
    HWY_ALIGN float reduced[2 * kRows];
    for (int first = 0; first < 2 * kRows; first += kLanes) store(reduced + first, reduce_each(sums + first, SumOf()));
    for (int r = 0; r < t.num_rows; ++r) {
      const float lambda = t.rows[r * mix.out + i], second = reduced[2 * r + 1];
      t.row_sums[pair_place(r, 2 * i, mix.in)] += reduced[2 * r];
      t.row_sums[pair_place(r, 2 * i + 1, mix.in)] -= lambda * second;
      t.row_gradients[pair_place(r, i, mix.out)] -= second;
    }
  }
}

inline void set_pairs_mix(Mix& mix) {
  mix.row_band = int64_t{kRows} * mix.out;
  mix.row_gradients = kRows * padded_heads(mix.out);
  mix.apply_wide = pairs_apply<kForwardKeys>;
  mix.apply_narrow = pairs_apply<kBackwardKeys>;
  mix.backward = pairs_backward;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
