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

/// The same, where of NaN and infinity only the rest will tell; of two nearest the one that is further from 0.
HWY_INLINE VecWords upper_of_three(Vec x) {
  const Words d;
  const VecWords all = hn::BitCast(d, x), sign = hn::Set(d, 0x80000000);
  const VecWords size = hn::Min(hn::Add(hn::AndNot(sign, all), hn::Set(d, 0x8000)), hn::Set(d, 0x7f7fffff));
  return hn::And(hn::IfVecThenElse(sign, all, size), hn::Set(d, 0xffff0000));
}

/// Bfloat16 numbers in upper halves, one that is x rounded, two whose sum misses x by 2^-17 of it, or three whose sum
/// is x: 24 bits are three times 8. Infinity and NaN are the first alone, or the rest of three; below 2^-110 the last
/// of three has no exponent left and is lost. Only the upper halves of the last of three are its own.
template <int kSplit>
HWY_INLINE void split(Vec x, VecWords* part) {
  const Words d;
  const Floats f;
  part[0] = kSplit == kParts ? upper_of_three(x) : upper_half(x);
  if (kSplit == 1) return;
  const Vec rest = hn::Sub(x, hn::BitCast(f, part[0]));
  part[1] = upper_rounded(hn::BitCast(d, rest));
  if (kSplit == 2) return;
  part[2] = hn::BitCast(d, hn::Sub(rest, hn::BitCast(f, part[1])));
}

/// split<3> in fewer instructions; what would round to infinity becomes NaN. Fewer parts are those of split.
template <int kSplit>
HWY_INLINE void split_weights(Vec x, VecWords* part) {
  if constexpr (kSplit < kParts) return split<kSplit>(x, part);
  const Words d;
  const Floats f;
  const VecWords half = hn::Set(d, 0x8000), upper = hn::Set(d, 0xffff0000);
  part[0] = hn::And(hn::Add(hn::BitCast(d, x), half), upper);
  const Vec rest = hn::Sub(x, hn::BitCast(f, part[0]));
  part[1] = hn::And(hn::Add(hn::BitCast(d, rest), half), upper);
  part[2] = hn::BitCast(d, hn::Sub(rest, hn::BitCast(f, part[1])));
}

/// Upper halves of two vectors to pairs, number by number.
HWY_INLINE Vec paired(VecWords low, VecWords high) {
  const Words d;
  return hn::BitCast(Floats(), hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(d, 0xffff0000))));
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

// 2 kLanes numbers of a row.
template <int kSplit>
HWY_INLINE void split_two(const float* from, float* to, int64_t stride) {
  VecWords low[kSplit], high[kSplit];
  split<kSplit>(hn::LoadU(Floats(), from), low), split<kSplit>(hn::LoadU(Floats(), from + kLanes), high);
  for (int p = 0; p < kSplit; ++p) hn::StoreU(in_pairs(low[p], high[p]), Floats(), to + p * stride);
}

/// Numbers of a row to (count + 1) / 2 pairs, in kSplit parts that lie `stride` apart.
template <int kSplit>
HWY_NOINLINE void split_row(const float* from, int64_t count, float* to, int64_t stride) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) split_two<kSplit>(from + i, to + i / 2, stride);
  if (i == count) return;
  HWY_ALIGN float rest[2 * kLanes] = {}, made[kSplit * kLanes];
  std::copy_n(from + i, count - i, rest);
  split_two<kSplit>(rest, made, kLanes);
  for (int p = 0; p < kSplit; ++p) std::copy_n(made + p * kLanes, (count - i + 1) / 2, to + p * stride + i / 2);
}

}  // namespace motet::HWY_NAMESPACE::parts
HWY_AFTER_NAMESPACE();

#endif
