// float32 numbers as bfloat16 ones: rounded, or each as three whose sum it is. Pairs along the summed axis lie in the
// room of one float, the first in its lower half, as tiles want them (tiles.h). Compiled once for each instruction set.
#if defined(MOTET_CORE_PARTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CORE_PARTS_INL_H
#undef MOTET_CORE_PARTS_INL_H
#else
#define MOTET_CORE_PARTS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE::parts {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::Rebind<uint32_t, Floats>;
using Vec = hn::Vec<Floats>;
using VecWords = hn::Vec<Words>;
constexpr int64_t kLanes = HWY_LANES(float);

constexpr int kParts = 3;  // at most

/// f(std::integral_constant of the number of parts).
template <class Function>
HWY_INLINE void with_parts(int parts, const Function& f) {
  if (parts == 1) return f(std::integral_constant<int, 1>());
  if (parts == 2) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, kParts>());
}

/// To the nearest bfloat16, of two the even one, in the upper half; without a care for what is not finite.
HWY_INLINE VecWords upper_rounded(VecWords x) {
  const Words d;
  const VecWords odd = hn::And(hn::ShiftRight<16>(x), hn::Set(d, 1));
  return hn::And(hn::Add(x, hn::Add(odd, hn::Set(d, 0x7fff))), hn::Set(d, 0xffff0000));
}

/// The same of all floats: what would round to infinity is cut instead, and NaN stays.
HWY_INLINE VecWords upper_half(Vec x) {
  const Words d;
  const VecWords all = hn::BitCast(d, x), top = hn::Set(d, 0x7f800000), rounded = upper_rounded(all);
  const VecWords finite =
      hn::IfThenElse(hn::Eq(hn::And(rounded, top), top), hn::And(all, hn::Set(d, 0xffff0000)), rounded);
  return hn::IfThenElse(hn::RebindMask(d, hn::Ne(x, x)), hn::Set(d, 0x7fc00000), finite);
}

/// Bfloat16 numbers in upper halves, one that is x rounded, two whose sum misses x by 2^-17 of it, or three whose sum
/// is x: 24 bits are three times 8. Infinity and NaN are the first alone; below 2^-110 the last of three has no
/// exponent left and is lost.
template <int kSplit>
HWY_INLINE void split(Vec x, VecWords* part) {
  const Words d;
  const Floats f;
  part[0] = upper_half(x);
  if (kSplit == 1) return;
  const Vec rest = hn::Sub(x, hn::BitCast(f, part[0]));
  part[1] = upper_rounded(hn::BitCast(d, rest));
  if (kSplit == 2) return;
  part[2] = hn::And(hn::BitCast(d, hn::Sub(rest, hn::BitCast(f, part[1]))), hn::Set(d, 0xffff0000));
}

/// Upper halves of two vectors to pairs, number by number.
HWY_INLINE Vec paired(VecWords low, VecWords high) {
  return hn::BitCast(Floats(), hn::Or(hn::ShiftRight<16>(low), high));
}

/// Upper halves of two vectors of numbers in a row to pairs.
HWY_INLINE Vec in_pairs(VecWords low, VecWords high) {
#if HWY_TARGET == HWY_SCALAR
  return paired(low, high);
#else
  const Words d;
  return paired(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
#endif
}

/// Numbers of a row to (count + 1) / 2 pairs, in kSplit parts that lie `stride` apart.
template <int kSplit>
HWY_NOINLINE void split_row(const float* from, int64_t count, float* to, int64_t stride) {
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    HWY_ALIGN float rest[2 * kLanes] = {}, made[kLanes];
    const int64_t have = std::min<int64_t>(count - i, 2 * kLanes);
    const bool whole = have == 2 * kLanes;
    if (!whole) std::copy_n(from + i, have, rest);
    const float* x = whole ? from + i : rest;
    VecWords low[kSplit], high[kSplit];
    split<kSplit>(hn::LoadU(Floats(), x), low), split<kSplit>(hn::LoadU(Floats(), x + kLanes), high);
    for (int p = 0; p < kSplit; ++p) {
      float* const out = to + p * stride + i / 2;
      hn::StoreU(in_pairs(low[p], high[p]), Floats(), whole ? out : made);
      if (!whole) std::copy_n(made, (have + 1) / 2, out);
    }
  }
}

}  // namespace motet::HWY_NAMESPACE::parts
HWY_AFTER_NAMESPACE();

#endif
