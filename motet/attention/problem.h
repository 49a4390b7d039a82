#pragma once
#include "motet/attention/parts.h"

namespace motet {

/// A checked operator call: sizes, complete head tables, the scale; what every kernel works on.
struct Problem {
  Tensor q_BTHD, k_BSGD, v_BSGE, bias_BHTS, lambda;
  HeadMix pre, post;
  std::array<Tensor, kNumTables> table;
  bool causal = false;
  int64_t window = 0;
  double scale = 0;
  Precision precision = Precision::highest;
  int64_t B = 0, T = 0, S = 0, D = 0, E = 0;
  int64_t score_heads = 0, softmax_heads = 0, output_heads = 0;
  std::vector<int64_t> key_of, value_of;  // complete
  /// Of k, v and parts of the key side in int8, in their shapes without the last dimension: what the rows fused and
  /// cuda alone read.
  std::array<Tensor, kNumInputs> scales;

  /// Of the tensors of the schema, in its order.
  Tensor& input(int);
  bool mixes_nothing() const { return !pre.any_part() && !post.any_part() && !lambda.defined(); }
  at::ScalarType accumulate() const;  // float64 for float64 inputs, else float32
};

/// Checks every argument, as attention.h words it; throws c10::ValueError. `function` opens every message.
Problem checked_problem(const Arguments&, const char* function);

/// Checks declared head counts (0 = undeclared) against those of the tensors.
void check_heads(const Heads& declared, const Problem&, const char* function);

/// Checks one mix on heads N -> returns M. `what` is "pre" or "post"; sizes B, T, S are those of the operator.
struct MixSizes {
  int64_t B, T, S, N;
};
int64_t checked_mix(const HeadMix&, const std::string& function, const char* what, MixSizes);

/// Shapes of the results without reading sizes as numbers (they may be symbolic): [B,T,Ho,E] and [B,Ha,T].
struct ResultShapes {
  std::vector<c10::SymInt> out, lse;
};
ResultShapes result_shapes(const Arguments&);

}  // namespace motet
