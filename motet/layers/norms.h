#pragma once
#include "motet/attention/torch.h"

namespace motet {

/// y = weight * x / sqrt(mean over the last axis of x^2 + eps). Statistics in at least float32; the result is cast to
/// x's dtype before it meets the weight. weight [C] or undefined (no affine part). Source: arXiv:1910.07467.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

/// A norm over the last axis with its parameters: RMS norm (weight) or layer norm (weight and bias), or an RMS norm
/// without parameters. Starts as the identity map of normed input: weight 1, bias 0.
enum class NormKind { rms, rms_plain, layer };
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(int64_t width, NormKind kind, double eps, at::Device device = at::kCPU);
  Tensor forward(const Tensor& x);

  Tensor weight, bias;

 private:
  int64_t width_;
  NormKind kind_;
  double eps_;
};
TORCH_MODULE(Norm);

}  // namespace motet
