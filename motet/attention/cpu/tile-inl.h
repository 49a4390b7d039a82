// Vector code shared by the kernels: products of small tiles, exp2, reductions across rows. Included once per
// instruction set.
#if defined(MOTET_CPU_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_TILE_INL_H
#undef MOTET_CPU_TILE_INL_H
#else
#define MOTET_CPU_TILE_INL_H
#endif

#include <array>
#include <cmath>
#include <cstdint>

#include <hwy/highway.h>
#include "motet/attention/cpu/group.h"
#include "motet/attention/cpu/plan.h"

#define MOTET_UNROLL(n) _Pragma(MOTET_UNROLL_TEXT(GCC unroll n))
#define MOTET_UNROLL_TEXT(x) #x

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kNothing = -1e38f;  // the maximum of a row that sees nothing, in powers of 2

using Floats = hn::ScalableTag<float>;
using Ints = hn::RebindToSigned<Floats>;
using Vec = hn::Vec<Floats>;
using Lane4 = hn::FixedTag<float, 4>;
constexpr int kLanes = static_cast<int>(HWY_LANES(float));

constexpr int kRegisters = HWY_TARGET == HWY_AVX2 ? 16 : 32;
// Rows and vectors of a row that are mixed at once: what the registers hold. Two vectors of 8 lanes are a line.
// Backward there are twice the sums; 16 registers make those of the inputs and those of the gradients one after the
// other.
constexpr int kMixRows = kRegisters / 16, kMixVectors = 2, kBackVectors = kMixVectors / kMixRows;
// Rows and vectors of a product's block of at most kWidth columns: half the registers hold its sums.
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;
template <int kWidth>
constexpr int kBlockVectors = kLanes == 16 ? kWidth / 16 : kRegisters / 8;

HWY_INLINE Vec load(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE void store(float* p, Vec v) { hn::StoreU(v, Floats(), p); }
HWY_INLINE Vec set(float x) { return hn::Set(Floats(), x); }
HWY_INLINE Vec zero() { return hn::Zero(Floats()); }
HWY_INLINE Vec fma(Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); }
HWY_INLINE void prefetch_l1(const float* p) { __builtin_prefetch(p, 0, 3); }
HWY_INLINE void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

/// 2^f on [-1/2, 1/2]: degree 6, coefficients of the minimax fit.
HWY_INLINE Vec exp2_fraction(Vec f) {
  Vec p = set(1.5353362e-4f);
  p = fma(p, f, set(1.3398874e-3f));
  p = fma(p, f, set(9.6184373e-3f));
  p = fma(p, f, set(5.5503324e-2f));
  p = fma(p, f, set(2.4022648e-1f));
  p = fma(p, f, set(6.9314720e-1f));
  return fma(p, f, set(1.0f));
}

/// 2^x: 0.9 ulp on [-100, 0], infinity beyond a float, NaN for NaN. Below -126, where a float has no exponent left, the
/// result is 0 or, with AVX-512, what is left of it.
HWY_INLINE Vec exp2(Vec x) {
#if HWY_TARGET <= HWY_AVX3
  const Vec whole = hn::Round(x);
  return Vec{_mm512_scalef_ps(exp2_fraction(hn::Sub(x, whole)).raw, whole.raw)};
#else
  // The sum has whole + 127, which is the exponent of 2^whole, in its last bits: at this size a float's step is 1. 255
  // is the exponent of infinity.
  constexpr float kWholes = 12582912.f + 127.f;
  // A NaN stays one: on x86 by the order of operands, while Highway's own Min of NEON gives the number.
#if HWY_ARCH_X86
  x = hn::Min(set(128.f), x);
#else
  x = Vec(vminq_f32(vdupq_n_f32(128.f), x.raw));
#endif
  const Vec sum = hn::Add(x, set(kWholes)), whole = hn::Sub(sum, set(kWholes));
  const Vec power = hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::BitCast(Ints(), sum)));
  const Vec y = hn::Mul(exp2_fraction(hn::Sub(x, whole)), power);
  return hn::IfThenZeroElse(hn::Lt(x, set(-126.f)), y);
#endif
}

// ---- products
// --------------------------------------------------------------------------------------------------------

/// What the products after this one touch, brought nearer while it is made, a line of each every so many additions: a
/// burst of fetches would fill the buffers that the product's own loads wait in. None is null; at the last tile some
/// lie behind their buffer.
struct Ahead {
  const float* near;                // into L1: what the next product writes
  std::array<const float*, 4> far;  // into L2
  static constexpr int64_t kLine = 16;

  HWY_INLINE Ahead(const float* n, const float* a, const float* b, const float* c, const float* d)
      : near(n), far{a, b, c, d} {}
  HWY_INLINE Ahead(const float* n, const float* a, const float* b) : Ahead(n, a, b, a, b) {}

  HWY_INLINE void fetch(int64_t line) const {
    prefetch_l1(near + line * kLine);
    MOTET_UNROLL(4) for (const float* x : far) prefetch_l2(x + line * kLine);
  }
};
constexpr int64_t kStepsOfLine = 2;  // of a product's depth

/// C (+)= A B for a tile of C: A[row i, step k] at a[i * a_row + k * a_step], B[k, column] at b[k * b_step + column].
/// What is added to C is summed apart: C holds sums over thousands of keys, beside which one term is rounded away.
struct Product {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t c_row;
  int64_t depth;
  const Ahead* ahead = nullptr;  // null: nothing is fetched
  int64_t first_line = 0;        // of what is ahead
};

template <int kMR, int kNR, bool kAdd, bool kAhead = false>
HWY_INLINE void product_block(const Product& x, int64_t row, int64_t column) {
  Vec c[kMR][kNR];
  float* const out = x.c + row * x.c_row + column;
  MOTET_UNROLL(8)
  for (int i = 0; i < kMR; ++i) MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) c[i][j] = zero();
  const float* a = x.a + row * x.a_row;
  const float* b = x.b + column;
  const int64_t a_row = x.a_row, a_step = x.a_step, b_step = x.b_step;
  const auto step = [&]() HWY_ATTR {
    Vec v[kNR];
    MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) v[j] = load(b + j * kLanes);
    MOTET_UNROLL(8) for (int i = 0; i < kMR; ++i) {
      const Vec s = set(a[i * a_row]);
      MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) c[i][j] = fma(s, v[j], c[i][j]);
    }
    a += a_step, b += b_step;
  };
  int64_t k = 0;
  if constexpr (kAhead) {
    const Ahead ahead = *x.ahead;
    for (int64_t line = x.first_line; k + kStepsOfLine <= x.depth; k += kStepsOfLine, ++line) {
      ahead.fetch(line);
      MOTET_UNROLL(2) for (int i = 0; i < kStepsOfLine; ++i) step();
    }
  }
  for (; k < x.depth; ++k) step();
  MOTET_UNROLL(8)
  for (int i = 0; i < kMR; ++i) MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) {
      float* const to = out + i * x.c_row + j * kLanes;
      store(to, kAdd ? hn::Add(load(to), c[i][j]) : c[i][j]);
    }
}

/// Rows (even, up to 8) x kWidth columns (16 or 32).
template <int kWidth, bool kAdd>
HWY_INLINE void product_columns(const Product& x, int rows) {
  constexpr int kMR = kBlockRows, kNR = kBlockVectors<kWidth>;
  for (int column = 0; column < kWidth; column += kNR * kLanes) {
    int row = 0;
    if (x.ahead && column == 0 && kMR <= rows) product_block<kMR, kNR, kAdd, true>(x, 0, 0), row = kMR;
    for (; row + kMR <= rows; row += kMR) product_block<kMR, kNR, kAdd>(x, row, column);
    for (; row < rows; row += 2) product_block<2, kNR, kAdd>(x, row, column);
  }
}

template <bool kAdd>
HWY_INLINE void product(const Product& x, int rows, int64_t width) {
  if (width == kPanel)
    product_columns<kPanel, kAdd>(x, rows);
  else
    product_columns<16, kAdd>(x, rows);
}

// ---- reductions
// ------------------------------------------------------------------------------------------------------

struct SumOf {
  HWY_INLINE Vec operator()(Vec a, Vec b) const { return hn::Add(a, b); }
};
struct MaxOf {
  HWY_INLINE Vec operator()(Vec a, Vec b) const { return hn::Max(a, b); }
};

/// The first step of reduce_each: lanes of a and b by turns, two of each reduced to one.
template <class Op>
HWY_INLINE Vec reduce_two(Vec a, Vec b, Op op) {
  const Floats d;
  return op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
}

/// The rest of it, of kLanes / 2 such pairs.
template <class Op>
HWY_INLINE Vec reduce_pairs(const Vec* pairs, Op op) {
  const Floats d;
  const hn::Repartition<double, Floats> wide;
  Vec quads[kLanes / 4];  // in each block of four lanes: rows 4i..4i+3
  MOTET_UNROLL(4) for (int i = 0; i < kLanes / 4; ++i) {
    const auto l = hn::BitCast(wide, pairs[2 * i]), r = hn::BitCast(wide, pairs[2 * i + 1]);
    quads[i] = op(hn::BitCast(d, hn::InterleaveLower(wide, l, r)), hn::BitCast(d, hn::InterleaveUpper(wide, l, r)));
  }
#if HWY_ARCH_X86
  const auto halves = [&](Vec a, Vec b) { return op(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a)); };
#endif
#if HWY_TARGET <= HWY_AVX3
  const Vec p = halves(quads[0], quads[1]), q = halves(quads[2], quads[3]);
  return op(Vec{_mm512_shuffle_f32x4(p.raw, q.raw, 0x88)}, Vec{_mm512_shuffle_f32x4(p.raw, q.raw, 0xdd)});
#elif HWY_TARGET == HWY_AVX2
  return halves(quads[0], quads[1]);
#else
  return quads[0];
#endif
}

/// kLanes vectors to one: lane i is v[i] reduced.
template <class Op>
HWY_INLINE Vec reduce_each(const Vec* v, Op op) {
  Vec pairs[kLanes / 2];
  MOTET_UNROLL(8) for (int i = 0; i < kLanes / 2; ++i) pairs[i] = reduce_two(v[2 * i], v[2 * i + 1], op);
  return reduce_pairs(pairs, op);
}

/// x, a logit, in powers of 2 less `top`. Logits themselves stay as they are: only their distance from the top is
/// scaled, and what rounds `top` cancels between a row's weights and their sum.
HWY_INLINE Vec from_top(Vec x, Vec top) { return hn::MulSub(x, set(kLog2E), top); }

// ---- softmax on tiles
// ------------------------------------------------------------------------------------------------

/// Of one sub-block and one tile: which columns each row sees, relative to the first column of the tile's part.
struct Mask {
  int begin[kRows], end[kRows];
  const int64_t* key_document = nullptr;  // of column 0, and of each row; null: documents leave no holes
  int64_t row_document[kRows];
};

/// Writes `value` over what the rows of `heads` tiles [8][kKeys] do not see.
template <int kKeys>
HWY_NOINLINE void hide(float* tile, int heads, int rows, int columns, const Mask& mask, float value) {
  const Ints d;
  for (int r = 0; r < rows; ++r) {
    if (!mask.key_document && mask.begin[r] <= 0 && mask.end[r] >= columns) continue;
    const auto begin = hn::Set(d, mask.begin[r]), end = hn::Set(d, mask.end[r]);
    for (int j = 0; j < columns; j += kLanes) {
      const auto at = hn::Iota(d, j);
      auto shown = hn::AndNot(hn::VecFromMask(d, hn::Lt(at, begin)), hn::VecFromMask(d, hn::Lt(at, end)));
      if (mask.key_document) {
        int32_t same[kLanes];
        for (int i = 0; i < kLanes; ++i)
          same[i] = j + i < mask.end[r] && j + i >= mask.begin[r] && mask.key_document[j + i] == mask.row_document[r]
                        ? -1
                        : 0;
        shown = hn::And(shown, hn::LoadU(d, same));
      }
      const auto keep = hn::RebindMask(Floats(), hn::MaskFromVec(shown));
      for (int h = 0; h < heads; ++h) {
        float* p = tile + (h * kRows + r) * kKeys + j;
        store(p, hn::IfThenElse(keep, load(p), set(value)));
      }
    }
  }
}

/// In place e = exp(x - m), m the row's maximum, for the rows [heads * 8] of a tile; the maxima (in powers of 2) and
/// the sums. A row that sees nothing (all -inf) has sum 0.
template <int kKeys>
HWY_NOINLINE void softmax_rows(float* tile, int heads, int columns, float* maxima, float* sums) {
  const int total = heads * kRows;
  for (int first = 0; first < total; first += kLanes) {
    Vec v[kLanes];
    const int last = total - first < kLanes ? kRows : kLanes;  // an odd head of 16 lanes: its rows stand twice
    float* const e = tile + first * kKeys;
    MOTET_UNROLL(16) for (int r = 0; r < kLanes; ++r) {
      const float* x = e + (r % last) * kKeys;
      Vec m = load(x);
      for (int j = kLanes; j < columns; j += kLanes) m = hn::Max(m, load(x + j));
      v[r] = m;
    }
    HWY_ALIGN float m[kLanes], s[kLanes];
    store(m, hn::Max(hn::Mul(reduce_each(v, MaxOf()), set(kLog2E)), set(kNothing)));
    for (int r = 0; r < last; ++r) {
      float* x = e + r * kKeys;
      const Vec top = set(m[r]);
      Vec sum = zero();
      for (int j = 0; j < columns; j += kLanes) {
        const Vec y = exp2(from_top(load(x + j), top));
        store(x + j, y);
        sum = hn::Add(sum, y);
      }
      v[r] = sum;
    }
    for (int r = last; r < kLanes; ++r) v[r] = zero();
    store(s, reduce_each(v, SumOf()));
    for (int r = 0; r < last; ++r) maxima[first + r] = m[r], sums[first + r] = s[r];
  }
}

/// What is subtracted from logits, in powers of 2, in two floats a row [heads * 8]: with large logits one is too
/// coarse.
struct Subtracted {
  float *high, *low;
};

/// In place exp(x), less high and low; adds each row's sum to sums [heads * 8] unless that is null.
template <int kKeys>
HWY_NOINLINE void exp2_rows(float* tile, int heads, int rows, int columns, Subtracted top, float* sums) {
  for (int h = 0; h < heads; ++h) {
    Vec v[kRows];
    for (int r = 0; r < rows; ++r) {
      float* x = tile + (h * kRows + r) * kKeys;
      const Vec high = set(top.high[h * kRows + r]), low = set(top.low[h * kRows + r]);
      Vec sum = zero();
      for (int j = 0; j < columns; j += kLanes) {
        const Vec y = exp2(hn::Sub(from_top(load(x + j), high), low));
        store(x + j, y);
        sum = hn::Add(sum, y);
      }
      v[r] = sum;
    }
    if (!sums) continue;
    for (int r = 0; r < rows; ++r) sums[h * kRows + r] += hn::GetLane(hn::SumOfLanes(Floats(), v[r]));
  }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
