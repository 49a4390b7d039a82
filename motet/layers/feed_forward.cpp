#include "motet/layers/feed_forward.h"

namespace motet {

Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
  }
  TORCH_INTERNAL_ASSERT(false, "unknown activation");
}

FeedForwardImpl::FeedForwardImpl(int64_t width, int64_t inner, Activation activation, bool gated)
    : activation_(activation) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(!gated)));
  };
  if (gated) gate_proj = linear("gate_proj", width, inner);
  up_proj = linear("up_proj", width, inner);
  down_proj = linear("down_proj", inner, width);
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  if (gate_proj) return down_proj(activated(gate_proj(x), activation_) * up_proj(x));
  return down_proj(activated(up_proj(x), activation_));
}

}  // namespace motet
