// Arithmetic on sizes that came from outside.
#pragma once

#include <cstdint>
#include <optional>

namespace motet {

// a * b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// a + b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace motet
