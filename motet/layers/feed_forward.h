#pragma once
#include "motet/layers/linear.h"
#include "motet/layers/options.h"

namespace motet {

Tensor activated(const Tensor& x, Activation);

/// Gated (SwiGLU): down(act(gate x) * up x), no biases; plain: down(act(up x)), with biases. width -> inner -> width.
class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(int64_t width, int64_t inner, Activation activation, bool gated, at::Device device = at::kCPU);
  Tensor forward(const Tensor& x);

 private:
  Activation activation_;
  Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(FeedForward);

}  // namespace motet
