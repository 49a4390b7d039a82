#pragma once
#include <cstdint>

namespace motet {

/// The types of numbers that fused kernels read and write; their arithmetic is float32. int8: read alone, of caches and
/// of weights.
enum class NumberType : uint8_t { float32, bfloat16, float16, int8 };

constexpr int64_t bytes_of(NumberType type) {
  return type == NumberType::float32 ? 4 : type == NumberType::int8 ? 1 : 2;
}

}  // namespace motet
