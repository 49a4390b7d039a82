#pragma once
#include "motet/attention/cpu/problem.h"

// The oracle of the torch-free tests: the operator's definition as loops in double, one sequence at a time.
namespace motet::cpu {

struct NaiveResult {
  std::vector<double> out, lse;  // [B,T,Ho,E], [B,Ha,T]
};
NaiveResult naive_forward(const Problem&);

/// Gradients of sum(out * dout); the vectors have the shapes of the inputs, lambda's is [B,T,Ho].
struct NaiveGradients {
  std::vector<double> q, k, v, lambda;
  std::array<std::vector<double>, kNumMixParts> pre, post;
};
NaiveGradients naive_backward(const Problem&, const std::vector<double>& dout);

/// Number (b, row, head, i) of an operand.
double element(const Operand&, int64_t b, int64_t row, int64_t head, int64_t i);

/// float32 to the bits of a 16-bit type and back, rounding to nearest even.
uint16_t narrow(float, Type);
float widen_bits(uint16_t, Type);

}  // namespace motet::cpu
