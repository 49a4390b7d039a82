#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// A norm over the last axis with its parameters: RMS norm (weight) or layer norm (weight and bias), or an RMS norm
/// without parameters. Starts as the identity map of normed input: weight 1, bias 0.
enum class NormKind { rms, rms_plain, layer };
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(int64_t width, NormKind kind, double eps, at::Device device = at::kCPU);
  Tensor forward(const Tensor& x);

  Tensor weight, bias;

 private:
  NormKind kind_;
  double eps_;
};
TORCH_MODULE(Norm);

}  // namespace motet
