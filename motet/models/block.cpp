#include "motet/models/model.h"

namespace motet {

int64_t ModelConfig::intermediate_size() const {
  const int64_t given = options.at("intermediate_size").get<int64_t>(), width = hidden_size();
  if (given > 0) return given;
  return gated() ? (8 * width + 2) / 3 : 4 * width;
}

BlockImpl::BlockImpl(const ModelConfig& c, int64_t layer) : parallel_(!c.gated()) {
  const auto kind = parallel_ ? NormKind::layer : NormKind::rms;
  const double eps = c.options.at("norm_eps").get<double>();
  const Setting setting{.hidden_size = c.hidden_size(),
                        .memory_size = c.hidden_size(),
                        .layer = layer,
                        .num_layers = c.num_layers(),
                        .causal = c.causal(),
                        .max_position = c.context,
                        .options = c.attention};
  self_attn = register_module("self_attn", make_mechanism(setting));
  input_layernorm = register_module("input_layernorm", Norm(c.hidden_size(), kind, eps));
  post_attention_layernorm = register_module("post_attention_layernorm", Norm(c.hidden_size(), kind, eps));
  mlp = register_module("mlp", FeedForward(c.hidden_size(), c.intermediate_size(),
                                           parallel_ ? Activation::gelu : Activation::silu, !parallel_));
}

Tensor BlockImpl::forward(const Tensor& x, const Positions& at, const Tensor& memory, const Positions& memory_at) {
  const Tensor attended = self_attn->forward(input_layernorm(x), at, memory, memory_at);
  if (parallel_) return x + attended + mlp(post_attention_layernorm(x));
  const Tensor h = x + attended;
  return h + mlp(post_attention_layernorm(h));
}

}  // namespace motet
