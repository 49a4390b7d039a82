#include "motet/layers/feed_forward.h"

#include "motet/layers/token_by_token.h"

namespace motet {

Tensor activated(const Tensor& x, Activation activation) {
  if (activation != Activation::silu) return ops::gelu(x, activation == Activation::gelu_tanh);
  return token_by_token(x, [](const Tensor& t) { return at::silu(t); });
}

FeedForwardImpl::FeedForwardImpl(int64_t width, int64_t inner, Activation activation, bool gated, at::Device device)
    : activation_(activation) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, Linear(in, out, !gated, device));
  };
  if (gated) gate_proj = linear("gate_proj", width, inner);
  up_proj = linear("up_proj", width, inner);
  down_proj = linear("down_proj", inner, width);
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  if (!gate_proj) return down_proj(activated(up_proj(x), activation_));
  const std::vector<Tensor> inner = linear_together({gate_proj.get(), up_proj.get()}, x);
  if (activation_ == Activation::silu) return down_proj(ops::silu_times(inner[0], inner[1]));
  return down_proj(activated(inner[0], activation_) * inner[1]);
}

}  // namespace motet
