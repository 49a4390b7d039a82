// Sums of products that stay in registers, and those of their lanes.
#if defined(MOTET_CORE_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CORE_SUMS_INL_H
#undef MOTET_CORE_SUMS_INL_H
#else
#define MOTET_CORE_SUMS_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE::sums {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;

/// A compiler would load what several products use once for each of them, and loads, not products, would be the limit.
HWY_INLINE void in_a_register(Vec& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

/// sum += a b. A compiler would move sums between registers, or to memory and back, where sixteen of them are all in
/// use.
HWY_INLINE void add_product(Vec& sum, Vec b, Vec a) {
#if HWY_TARGET == HWY_AVX2
  auto in_place = sum.raw;
  asm("vfmadd231ps %2, %1, %0" : "+x"(in_place) : "x"(b.raw), "x"(a.raw));
  sum.raw = in_place;
#else
  sum = hn::MulAdd(b, a, sum);
#endif
}

#if HWY_TARGET != HWY_SCALAR
// Blocks of four lanes added up, halves first.
template <class D>
HWY_INLINE void add_blocks(D d, hn::Vec<D> v, float* HWY_RESTRICT to) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}
#endif

/// The sums of the lanes of four vectors, each in the same order wherever it stands.
HWY_INLINE void sums_of_lanes(Vec a, Vec b, Vec c, Vec d, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::GetLane(a), to[1] = hn::GetLane(b), to[2] = hn::GetLane(c), to[3] = hn::GetLane(d);
#else
  const Floats f;
  const hn::Repartition<uint64_t, Floats> pairs;
  const auto halves = [&](Vec u, Vec v) HWY_ATTR {  // of each block of four lanes: u0+u2, v0+v2, u1+u3, v1+v3
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(f, u, v), hn::InterleaveUpper(f, u, v)));
  };
  const auto ab = halves(a, b), cd = halves(c, d);
  add_blocks(
      f,
      hn::Add(hn::BitCast(f, hn::InterleaveLower(pairs, ab, cd)), hn::BitCast(f, hn::InterleaveUpper(pairs, ab, cd))),
      to);
#endif
}

}  // namespace motet::HWY_NAMESPACE::sums
HWY_AFTER_NAMESPACE();

#endif
