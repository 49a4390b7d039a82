// Included before any header of Highway: which of its targets our kernels are compiled for.
#pragma once

#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#else
// On ARM NEON alone, for every CPU there has it. A vector of SVE has no size, so that no array can hold it, and the
// kernels keep their sums in arrays.
#define HWY_COMPILE_ONLY_STATIC
#endif
