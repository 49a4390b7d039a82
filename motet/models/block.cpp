#include "motet/models/model.h"

namespace motet {

int64_t ModelConfig::intermediate_size() const {
  if (options.intermediate_size > 0) return options.intermediate_size;
  return gated() ? (8 * options.hidden_size + 2) / 3 : 4 * options.hidden_size;
}

Activation ModelConfig::activation() const {
  return options.activation.value_or(gated() ? Activation::silu : Activation::gelu);
}

BlockImpl::BlockImpl(const ModelConfig& c, int64_t layer, at::Device device) : parallel_(c.parallel()) {
  const auto kind = c.gated() ? NormKind::rms : NormKind::layer;
  const double eps = c.options.norm_eps;
  const Setting setting{.hidden_size = c.hidden_size(),
                        .memory_size = c.hidden_size(),
                        .layer = layer,
                        .num_layers = c.num_layers(),
                        .causal = c.causal(),
                        .max_position = c.context,
                        .options = c.attention,
                        .device = device};
  self_attn = register_module("self_attn", make_mechanism(setting));
  input_layernorm = register_module("input_layernorm", Norm(c.hidden_size(), kind, eps, device));
  post_attention_layernorm = register_module("post_attention_layernorm", Norm(c.hidden_size(), kind, eps, device));
  mlp = register_module("mlp", FeedForward(c.hidden_size(), c.intermediate_size(), c.activation(), c.gated(), device));
}

Tensor BlockImpl::forward(const Tensor& x, const Positions& at, const Tensor& memory, const Positions& memory_at) {
  return after(x, self_attn->forward(input_layernorm(x), at, memory, memory_at));
}

Tensor BlockImpl::after(const Tensor& x, const Tensor& attended, const Dropout& dropout) {
  const auto dropped = [&](const Tensor& y, uint64_t place) {
    return dropout.p > 0 ? ops::dropout(y, dropout.at(place)) : y;
  };
  if (parallel_) return x + dropped(attended, 0) + dropped(mlp(post_attention_layernorm(x)), 1);
  const Tensor h = x + dropped(attended, 0);
  return h + dropped(mlp(post_attention_layernorm(h)), 1);
}

}  // namespace motet
