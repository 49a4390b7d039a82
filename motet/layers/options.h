// What layers can be told; torch-free, for the tables of options.
#pragma once
#include <cstdint>
#include <string>

namespace motet {

enum class Activation { silu, gelu, gelu_tanh };

/// Rotary position embedding: pair j of the first `dims` dimensions turns by position * theta_j, theta_j =
/// base^(-2j/dims); the other dimensions pass. Source: RoFormer, arXiv:2104.09864; scalings: README.md of this folder.
struct RotaryOptions {
  enum class Pairing { half, interleaved };  // (j, j + dims/2) or (2j, 2j + 1)
  enum class Scaling { none, linear, ntk, dynamic, llama3 };
  int64_t dims = 0;  // even; 0 = no rotation
  double base = 10000;
  Pairing pairing = Pairing::half;
  Scaling scaling = Scaling::none;
  double factor = 1;
  int64_t max_position = 0;                          // trained length L0 of dynamic and llama3
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3

  std::string key() const;  // equal for equal options
};

}  // namespace motet
