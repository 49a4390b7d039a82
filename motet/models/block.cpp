#include "motet/models/model.h"

namespace motet {

BlockImpl::BlockImpl(const ModelConfig& c, int64_t layer, at::Device device) : parallel_(c.parallel()) {
  const Setting setting{.hidden_size = c.hidden_size(),
                        .memory_size = c.hidden_size(),
                        .layer = layer,
                        .num_layers = c.num_layers(),
                        .causal = c.causal(),
                        .max_position = c.context,
                        .options = c.layer_attention(),
                        .device = device};
  self_attn = register_module("self_attn", make_mechanism(setting));
  const auto norm = [&](const char* name) {
    return register_module(name, Norm(c.hidden_size(), c.norm_kind(), c.options.norm_eps, device));
  };
  if (!c.post_norm()) input_layernorm = norm("input_layernorm");
  post_attention_layernorm = norm("post_attention_layernorm");
  if (c.post_norm()) post_feedforward_layernorm = norm("post_feedforward_layernorm");
  mlp = register_module("mlp", FeedForward(c.hidden_size(), c.intermediate_size(), c.activation(), c.gated(), device));
}

Tensor BlockImpl::forward(const Tensor& x, const Positions& at, const Tensor& memory, const Positions& memory_at) {
  return after(x, self_attn->forward(normed(x), at, memory, memory_at));
}

Tensor BlockImpl::normed(const Tensor& x) { return input_layernorm ? input_layernorm(x) : x; }

Tensor BlockImpl::after(const Tensor& x, const Tensor& attended, const Dropout& dropout) {
  const auto dropped = [&](const Tensor& y, uint64_t place) {
    return dropout.p > 0 ? ops::dropout(y, dropout.at(place)) : y;
  };
  if (parallel_) return x + dropped(attended, 0) + dropped(mlp(post_attention_layernorm(x)), 1);
  const Tensor h = x + dropped(attended, 0);
  if (post_feedforward_layernorm) {
    const Tensor middle = post_attention_layernorm(h);
    return post_feedforward_layernorm(middle + dropped(mlp(middle), 1));
  }
  return h + dropped(mlp(post_attention_layernorm(h)), 1);
}

}  // namespace motet
