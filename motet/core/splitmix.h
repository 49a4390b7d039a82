#pragma once
#include <cstdint>

namespace motet {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

// A number that looks random, another for each z (the output function of splitmix64, Steele et al. 2014).
constexpr uint64_t splitmix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The number `at` of the stream that `seed` begins.
constexpr uint64_t splitmix64(uint64_t seed, uint64_t at) { return splitmix64(seed + (at + 1) * kGolden); }

}  // namespace motet
