#pragma once
#include <set>

#include "motet/attention/attention.h"
#include "motet/verify/golden_file.h"

// What a golden file's `program` computes. Each one only prepares arguments: the operator and the mechanisms compute.
namespace motet {

/// A computed tensor and its axes. An undefined value is a part that is off: zeros.
struct Quantity {
  Tensor value;
  std::string layout;
};

/// Everything that one spec yields, by the names of spec.outputs and spec.mids (out, lse, scores, ... ; "visible" is
/// the mask it describes), and how gradients get back to the file's tensors.
struct Evaluation {
  std::map<std::string, Quantity> quantities;
  /// Module parameters and the functions of the file's tensors that they were filled with, one by one.
  std::vector<Tensor> parameters, expressions;

  /// Throws Error with the nearest name.
  const Quantity& quantity(const std::string& name) const;
  /// Gradients of `loss` to the leaves of the file, through the parameters.
  void backward(const Tensor& loss) const;
};

/// Names of quantities that the caller reads; costly ones are made on demand only.
using Quantities = std::set<std::string>;

/// Throws Error unless spec.program is one of ours.
void check_program(const Spec&);
/// Runs spec.program. Throws Error.
Evaluation evaluate(const GoldenFile&, const Spec&, const Quantities&);
std::vector<std::string> program_names();

Evaluation run_operator(const GoldenFile&, const Spec&, const Quantities&);
Evaluation run_head_mix(const GoldenFile&, const Spec&, const Quantities&);
Evaluation run_rope(const GoldenFile&, const Spec&, const Quantities&);
Evaluation run_layer(const GoldenFile&, const Spec&, const Quantities&);

}  // namespace motet
