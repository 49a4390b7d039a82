// Weights of each type for the tests of linear layers.
#pragma once
#include <bit>
#include <random>
#include <vector>

#include "motet/core/half.h"
#include "motet/kernels/linear.h"

namespace motet {

inline std::vector<float> drawn(int64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  std::vector<float> all(static_cast<size_t>(count));
  for (float& x : all) x = normal(random);
  return all;
}

// A weight with what it points to.
struct Kept {
  std::vector<float> w, bias, scale;
  std::vector<uint16_t> halves;
  std::vector<int8_t> bytes;
  Weight weight;

  Kept(WeightType type, int64_t N, int64_t K) : w(drawn(N * K, 1)), bias(drawn(N, 2)) {
    weight = {.type = type, .data = w.data(), .bias = bias.data(), .N = N, .K = K};
    if (bytes_of(type) == 2) {
      for (const float x : w)
        halves.push_back(type == WeightType::float16 ? std::bit_cast<uint16_t>(static_cast<Half>(x))
                                                     : static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
      weight.data = halves.data();
    }
    if (type == WeightType::int8) {
      bytes.resize(w.size()), scale.resize(static_cast<size_t>(N));
      quantize_rows(w.data(), N, K, bytes.data(), scale.data());
      weight.data = bytes.data(), weight.scale = scale.data();
    }
  }
  Kept(const Kept&) = delete;

  // What the kept numbers stand for, [N,K].
  std::vector<float> values() const {
    std::vector<float> rows(w.size());
    dequantize_rows(weight, 0, weight.N, rows.data());
    return rows;
  }
};

inline constexpr WeightType kTypes[] = {WeightType::float32, WeightType::bfloat16, WeightType::float16,
                                        WeightType::int8};

}  // namespace motet
