// Highway's dynamic dispatch by the CPU check that all of Motet's kernels share.
#pragma once
#include "motet/core/instructions.h"

// Of a function's compiled versions the best that this CPU has. The tests that ask for AVX2 alone get that.
#if defined(MOTET_AVX2_ALONE)
#define MOTET_BEST(f) (has_avx2() ? N_AVX2::f : HWY_STATIC_DISPATCH(f))
#elif HWY_ARCH_X86
#define MOTET_BEST(f) (has_avx512() ? N_AVX3::f : has_avx2() ? N_AVX2::f : HWY_STATIC_DISPATCH(f))
#else
#define MOTET_BEST(f) HWY_STATIC_DISPATCH(f)
#endif
