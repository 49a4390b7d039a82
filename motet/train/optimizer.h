#pragma once
#include <functional>

#include "motet/models/model.h"

namespace motet {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

/// AdamW (arXiv:1711.05101), decoupled decay as in torch.optim.AdamW, by torch's fused CPU and CUDA kernel. Moments
/// have the parameters' dtype.
class AdamW {
 public:
  /// Which parameters decay, by name.
  using Decays = std::function<bool(const std::string& name, const Tensor& parameter)>;

  /// Decay as ModelImpl::decays says. The model begins to train: what was prepared for inference is dropped.
  AdamW(ModelImpl&, AdamWOptions);
  AdamW(ModelImpl&, AdamWOptions, const Decays&);
  void step(double learning_rate);
  void zero_grad();
  /// The norm of all gradients together, a number on their device; 0 on the CPU without any.
  Tensor gradient_norm() const;
  /// Scales all gradients, whose norm is `norm`, so that it is at most `limit` (0: leaves them).
  void clip(double limit, double norm);

 private:
  struct Group {
    double weight_decay;
    std::vector<Tensor> parameters, first, second, steps;
  };
  std::vector<Tensor> gradients() const;

  AdamWOptions options_;
  std::vector<Group> groups_;
};

}  // namespace motet
