#pragma once
#include <cstdint>

namespace motet {

/// The types of numbers that fused kernels read and write; their arithmetic is float32.
enum class NumberType : uint8_t { float32, bfloat16, float16 };

}  // namespace motet
