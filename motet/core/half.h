#pragma once

namespace motet {

/// The compiler's float16: conversions round to nearest, of two the even.
#if defined(__aarch64__)
using Half = __fp16;  // GCC has _Float16 in C++ there from 13 on
#else
using Half = _Float16;
#endif

}  // namespace motet
