#pragma once
#include "motet/models/model.h"

namespace motet {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

/// AdamW (arXiv:1711.05101) with torch's fused CPU and CUDA kernel; matrices decay; norms, biases, gates, the
/// embedding and vectors do not.
class AdamW {
 public:
  AdamW(ModelImpl&, AdamWOptions);
  void step(double learning_rate);
  void zero_grad();
  /// Scales all gradients so that their norm is at most `limit` (0: leaves them); returns the norm before.
  double clip(double limit);

 private:
  struct Group {
    double weight_decay;
    std::vector<Tensor> parameters, first, second, steps;
  };
  AdamWOptions options_;
  std::vector<Group> groups_;
};

/// Whether weight decay applies to a parameter of this name.
bool decays(const std::string& name, const Tensor& parameter);

}  // namespace motet
