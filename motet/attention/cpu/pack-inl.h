// Rows of numbers as they come (any type and stride) into the packed panels that products read, and back.
#if defined(MOTET_CPU_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_PACK_INL_H
#undef MOTET_CPU_PACK_INL_H
#else
#define MOTET_CPU_PACK_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "motet/attention/cpu/sight.h"
#include "motet/attention/cpu/tile-inl.h"
#include "motet/core/each-inl.h"
#include "motet/core/half.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

using motet::HWY_NAMESPACE::each;

/// float16 and float32, rounded to nearest, of two the even.
#if HWY_ARCH_X86
HWY_INLINE float half_value(uint16_t bits) { return _cvtsh_ss(bits); }
HWY_INLINE uint16_t half_bits(float x) { return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)); }
#else
HWY_INLINE float half_value(uint16_t bits) { return static_cast<float>(std::bit_cast<Half>(bits)); }
HWY_INLINE uint16_t half_bits(float x) { return std::bit_cast<uint16_t>(static_cast<Half>(x)); }
#endif

HWY_INLINE float widen(uint16_t bits, Type type) {
  if (type == Type::bfloat16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &wide, sizeof f);
    return f;
  }
  return half_value(bits);
}

/// A vector of stored numbers.
HWY_INLINE Vec load(const hwy::bfloat16_t* p) {
  const hn::Rebind<uint16_t, Floats> narrow;
  const hn::Rebind<uint32_t, Floats> wide;
  return hn::BitCast(Floats(),
                     hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p)))));
}
HWY_INLINE Vec load(const hwy::float16_t* p) {
  return hn::PromoteTo(Floats(), hn::LoadU(hn::Rebind<hwy::float16_t, Floats>(), p));
}

HWY_INLINE Vec load(const int8_t* p) {
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<int8_t, Floats>(), p)));
}

/// f(i) for vectors of `count` numbers, the last of which may be in two; else one(i) for each number.
template <class Function, class One>
HWY_INLINE void each_vector(int64_t count, const Function& f, const One& one) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i);
  if (i > 0 && i < count) return f(count - kLanes);
  for (; i < count; ++i) one(i);
}

/// `count` numbers from element `offset` of `data` as float32; those of int8 without their scale.
HWY_INLINE void widen_row(const void* data, Type type, int64_t offset, int64_t count, float* to) {
  if (type == Type::float32) {
    std::memcpy(to, static_cast<const float*>(data) + offset, count * sizeof(float));
    return;
  }
  if (type == Type::int8) {
    const int8_t* from = static_cast<const int8_t*>(data) + offset;
    return each_vector(
        count, [&](int64_t i) HWY_ATTR { store(to + i, load(from + i)); }, [&](int64_t i) { to[i] = from[i]; });
  }
  const uint16_t* from = static_cast<const uint16_t*>(data) + offset;
  each_vector(
      count,
      [&](int64_t i) HWY_ATTR {
        store(to + i, type == Type::bfloat16 ? load(reinterpret_cast<const hwy::bfloat16_t*>(from + i))
                                             : load(reinterpret_cast<const hwy::float16_t*>(from + i)));
      },
      [&](int64_t i) { to[i] = widen(from[i], type); });
}

/// to[i] = factor * from[i], i < width.
HWY_INLINE void scale_row(const float* from, float factor, int64_t width, float* to) {
  const Vec f = set(factor);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) store(to + i, hn::Mul(f, load(from + i)));
  for (; i < width; ++i) to[i] = factor * from[i];
}

/// `count` float32 numbers to `type` (round to nearest even) at element `offset` of `data`.
HWY_INLINE void narrow_row(const float* from, int64_t count, void* data, Type type, int64_t offset) {
  if (type == Type::float32) {
    std::memcpy(static_cast<float*>(data) + offset, from, count * sizeof(float));
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(data) + offset;
  for (int64_t i = 0; i < count; ++i) {
    if (type == Type::float16) {
      to[i] = half_bits(from[i]);
    } else {
      uint32_t bits;
      std::memcpy(&bits, from + i, sizeof bits);
      to[i] = from[i] != from[i] ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}

/// Rows [first, first + count) of a head as float32, contiguous width `width` with a stride; narrower types go through
/// `staging` [count * width], which holds them already when `staged`.
struct Rows {
  const float* data;
  int64_t stride;
};
HWY_INLINE Rows rows_of(const Operand& x, int64_t b, int64_t head, Span keys, int64_t width, float* staging,
                        bool staged = false) {
  const int64_t start = b * x.batch_stride + head * x.head_stride + keys.begin * x.row_stride;
  if (x.type == Type::float32) return {static_cast<const float*>(x.data) + start, x.row_stride};
  for (int64_t i = 0; !staged && i < keys.end - keys.begin; ++i) {
    float* const row = staging + i * width;
    widen_row(x.data, x.type, start + i * x.row_stride, width, row);
    if (const float* const scale = x.scale_of(b, keys.begin + i, head)) scale_row(row, *scale, width, row);
  }
  return {staging, width};
}

/// Where number n of a row goes: row n of the result, or the row that a table gives.
struct InOrder {
  int64_t stride;
  HWY_INLINE int64_t operator()(int64_t n) const { return n * stride; }
};
template <int kStride>
struct InPlaces {
  const int32_t* places;
  HWY_INLINE int64_t operator()(int64_t n) const { return int64_t{places[n]} * kStride; }
};

/// Of four vectors, in every block of 4 numbers: number n (n < 4) of vector i to number i of vector n.
HWY_INLINE void transpose_in_blocks(Vec* v) {
  const Floats d;
  const hn::Repartition<double, Floats> wide;
  const auto pair = [&](Vec a, Vec b) HWY_ATTR { return hn::BitCast(wide, hn::InterleaveLower(d, a, b)); };
  const auto rest = [&](Vec a, Vec b) HWY_ATTR { return hn::BitCast(wide, hn::InterleaveUpper(d, a, b)); };
  const auto p = pair(v[0], v[1]), q = pair(v[2], v[3]), s = rest(v[0], v[1]), t = rest(v[2], v[3]);
  v[0] = hn::BitCast(d, hn::InterleaveLower(wide, p, q)), v[1] = hn::BitCast(d, hn::InterleaveUpper(wide, p, q));
  v[2] = hn::BitCast(d, hn::InterleaveLower(wide, s, t)), v[3] = hn::BitCast(d, hn::InterleaveUpper(wide, s, t));
}

/// out[place(n) + i] = number n (n < 4) of row i (i < kLanes).
template <class Place>
HWY_INLINE void transpose_four(const float* rows, int64_t stride, float* out, const Place& place) {
  const Lane4 d4;
  Vec v[4];
  MOTET_UNROLL(4) for (int i = 0; i < 4; ++i) {  // block k of v[i]: the numbers of row 4k + i
    const float* const row = rows + i * stride;
    const auto four = [&](int64_t step) HWY_ATTR { return hn::LoadU(d4, row + step); };
#if HWY_TARGET <= HWY_AVX3
    const int64_t step = 4 * stride;
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(four(0).raw), four(step).raw, 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(four(2 * step).raw), four(3 * step).raw, 1);
    v[i] = Vec{_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
#elif HWY_TARGET == HWY_AVX2
    v[i] = hn::Combine(Floats(), four(4 * stride), four(0));
#else
    v[i] = four(0);
#endif
  }
  transpose_in_blocks(v);
  MOTET_UNROLL(4) for (int n = 0; n < 4; ++n) store(out + place(n), v[n]);
}

/// out[place(n) + i] = number n (n < width) of row i (i < 32); rows outside [first, last) of the panel give 0.
/// `rows.data` is row `first`.
template <class Place>
HWY_NOINLINE void pack_transposed(const Rows& rows, int first, int last, int64_t width, float* out, const Place where) {
  for (int at = 0; at < kPanel; at += kLanes, out += kLanes) {
    const int begin = std::max(first, at), end = std::min(last, at + kLanes);
    const auto row = [&](int i) { return rows.data + (i - first) * rows.stride; };  // that may be read
    const auto from = [&](int64_t n) { return [where, n](int64_t i) { return where(n + i); }; };
    int64_t n = 0;
    const auto four = [&](int64_t n) HWY_ATTR {
      if (end - begin == kLanes) return transpose_four(row(at) + n, rows.stride, out, from(n));
      HWY_ALIGN float some[4 * kLanes] = {};
      for (int i = begin; i < end; ++i) std::memcpy(some + 4 * (i - at), row(i) + n, 4 * sizeof(float));
      transpose_four(some, 4, out, from(n));
    };
    for (; n + 4 <= width; n += 4) four(n);
    if (n > 0 && n < width) four(width - 4), n = width;  // some of them again
    for (; n < width; ++n)
      for (int i = at; i < at + kLanes; ++i) out[where(n) + i - at] = i >= begin && i < end ? row(i)[n] : 0.f;
  }
}

/// The reverse of pack_transposed for rows [0, count): to[i * stride + n] = from[place(n) + i].
template <class Place>
HWY_NOINLINE void unpack_transposed(const float* from, const Place place, int count, int64_t width, float* to,
                                    int64_t stride) {
  for (int i = 0; i < count; ++i)
    for (int64_t n = 0; n < width; ++n) to[i * stride + n] = from[place(n) + i];
}

/// Columns of a width lie in panels one after another, [panel][keys][32], the last one 16 wide where that suffices.
struct ColumnPanel {
  int64_t column, width;  // first column; 32 or 16
};
HWY_INLINE ColumnPanel column_panel(int64_t width, int64_t column) {
  return {column, padded_width(width) - column >= kPanel ? kPanel : 16};
}

/// Natural rows into column panels of a tile of kKeys rows: out[column / 32][row][32]. Rows outside [first, last) and
/// columns beyond the width give 0. `rows.data` is row `first`.
template <int kKeys>
HWY_NOINLINE void pack_columns(const Rows& rows, int first, int last, int64_t width, float* out) {
  for (int64_t column = 0; column < width; column += kPanel) {
    const ColumnPanel panel = column_panel(width, column);
    float* o = out + column * kKeys;
    const int64_t have = std::min(panel.width, width - column);
    for (int i = 0; i < kKeys; ++i, o += panel.width) {
      if (i < first || i >= last) {
        for (int64_t j = 0; j < panel.width; j += kLanes) store(o + j, zero());
        continue;
      }
      const float* x = rows.data + (i - first) * rows.stride + column;
      if (have == panel.width) {
        for (int64_t j = 0; j < have; j += kLanes) store(o + j, load(x + j));
      } else {
        std::memcpy(o, x, have * sizeof(float));
        std::memset(o + have, 0, (panel.width - have) * sizeof(float));
      }
    }
  }
}

/// Column panels of a tile back to natural rows [0, count).
template <int kKeys>
HWY_NOINLINE void unpack_columns(const float* from, int count, int64_t width, float* to, int64_t stride) {
  for (int64_t column = 0; column < width; column += kPanel) {
    const ColumnPanel panel = column_panel(width, column);
    const int64_t have = std::min(panel.width, width - column);
    for (int i = 0; i < count; ++i) {
      const float* x = from + column * kKeys + i * panel.width;
      float* y = to + i * stride + column;
      int64_t j = 0;
      for (; j + kLanes <= have; j += kLanes) store(y + j, load(x + j));
      for (; j < have; ++j) y[j] = x[j];
    }
  }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
