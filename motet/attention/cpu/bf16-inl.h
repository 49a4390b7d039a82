// Products of bfloat16 numbers with float32 sums, where the CPU multiplies pairs of them (AVX-512 with bf16): half the
// instructions and half the memory of the float32 products. Operands are pairs, one in 32 bits, along the summed axis.
#if defined(MOTET_CPU_BF16_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_BF16_INL_H
#undef MOTET_CPU_BF16_INL_H
#else
#define MOTET_CPU_BF16_INL_H
#endif

#include "motet/attention/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3
constexpr bool kHasPairs = true;
#define MOTET_BF16 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")))

/// As Product, but a and b hold pairs (depth counts pairs), and the sums are multiplied by `factor`.
template <int kNR, bool kAdd, bool kAhead>
MOTET_BF16 static inline void pair_product_rows(const Product& x, int first, int rows, int64_t column, float factor) {
  __m512 c[8][kNR];
  const int last = rows - 1;  // rows beyond the last repeat it and are not stored
  float* const out = x.c + first * x.c_row + column;
  MOTET_UNROLL(8)
  for (int i = 0; i < 8; ++i) MOTET_UNROLL(2)
  for (int j = 0; j < kNR; ++j) c[i][j] = _mm512_setzero_ps();
  const float* a[8];
  MOTET_UNROLL(8) for (int i = 0; i < 8; ++i) a[i] = x.a + (first + (i < last ? i : last)) * x.a_row;
  const float* b = x.b + column;
  for (int64_t k = 0; k < x.depth; ++k, b += x.b_step) {
    if (kAhead && k % kStepsOfLine == 0) x.ahead->fetch(x.first_line + k / kStepsOfLine);
    __m512bh v[kNR];
    MOTET_UNROLL(2) for (int j = 0; j < kNR; ++j) v[j] = (__m512bh)_mm512_loadu_ps(b + 16 * j);
    MOTET_UNROLL(8) for (int i = 0; i < 8; ++i) {
      const __m512bh s = (__m512bh)_mm512_set1_ps(a[i][k]);
      MOTET_UNROLL(2) for (int j = 0; j < kNR; ++j) c[i][j] = _mm512_dpbf16_ps(c[i][j], s, v[j]);
    }
  }
  const __m512 f = _mm512_set1_ps(factor);
  MOTET_UNROLL(8) for (int i = 0; i < 8; ++i) {
    if (i > last) continue;
    MOTET_UNROLL(2)
    for (int j = 0; j < kNR; ++j) {
      float* const to = out + i * x.c_row + 16 * j;
      _mm512_storeu_ps(to, kAdd ? _mm512_fmadd_ps(f, c[i][j], _mm512_loadu_ps(to)) : _mm512_mul_ps(f, c[i][j]));
    }
  }
}

template <bool kAdd>
MOTET_BF16 static inline void pair_product(const Product& x, int rows, int64_t width, float factor) {
  if (width != kPanel) return pair_product_rows<1, kAdd, false>(x, 0, rows, 0, factor);
  if (x.ahead)
    pair_product_rows<2, kAdd, true>(x, 0, rows, 0, factor);
  else
    pair_product_rows<2, kAdd, false>(x, 0, rows, 0, factor);
}

/// `count` (a multiple of 32) float32 numbers to bfloat16, in order, into count / 2 floats' room.
MOTET_BF16 static inline void to_pairs(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += 32) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
    _mm512_storeu_ps(to + i / 2, (__m512)both);
  }
}
#else
constexpr bool kHasPairs = false;
template <bool kAdd>
HWY_INLINE void pair_product(const Product&, int, int64_t, float) {}
HWY_INLINE void to_pairs(const float*, int64_t, float*) {}
#endif

/// Rows [first, last) of 32 keys, as they come in bfloat16, to pairs along the width: out[width / 2][32 keys].
HWY_INLINE void pack_pairs_transposed(const uint16_t* rows, int64_t stride, int first, int last, int64_t width,
                                      float* out) {
  pack_transposed({reinterpret_cast<const float*>(rows), stride / 2}, first, last, width / 2, out, InOrder{kPanel});
}

/// Rows of a tile in bfloat16 to pairs along the keys: column panels of out[keys / 2][panel width]. Rows outside
/// [first, last) and columns beyond the width give 0.
template <int kKeys>
HWY_NOINLINE void pack_pairs_columns(const uint16_t* rows, int64_t stride, int first, int last, int64_t width,
                                     float* out) {
  for (int64_t column = 0; column < width; column += kPanel) {
    const ColumnPanel panel = column_panel(width, column);
    uint32_t* o = reinterpret_cast<uint32_t*>(out) + column * (kKeys / 2);
    for (int i = 0; i < kKeys; i += 2, o += panel.width) {
      const bool has_low = i >= first && i < last, has_high = i + 1 >= first && i + 1 < last;
      const uint16_t* low = rows + (i - first) * stride + column;
      for (int64_t j = 0; j < panel.width; ++j) {
        const bool inside = column + j < width;
        o[j] = (has_low && inside ? low[j] : 0u) |
               (has_high && inside ? static_cast<uint32_t>(low[stride + j]) << 16 : 0u);
      }
    }
  }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
