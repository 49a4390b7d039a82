// Loops whose counter is a constant.
#if defined(MOTET_CORE_EACH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CORE_EACH_INL_H
#undef MOTET_CORE_EACH_INL_H
#else
#define MOTET_CORE_EACH_INL_H
#endif

#include <hwy/highway.h>

#include <utility>

/// Of a lambda in a kernel that is always inlined.
#undef MOTET_INLINED
#define MOTET_INLINED HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE {

/// f of 0 to kCount - 1, each a constant. Vectors in an array whose places a loop counts can be left in memory, even if
/// the loop is unrolled.
template <int kCount, class F>
HWY_INLINE void each(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>)
      MOTET_INLINED { (f(std::integral_constant<int, i>()), ...); }(std::make_integer_sequence<int, kCount>());
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
