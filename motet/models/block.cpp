#include "motet/mechanisms/projected.h"
#include "motet/models/model.h"

namespace motet {

int64_t ModelConfig::intermediate_size() const {
  const int64_t given = options.at("intermediate_size").get<int64_t>(), width = hidden_size();
  if (given > 0) return given;
  return gated() ? (8 * width + 2) / 3 : 4 * width;
}

std::string ModelConfig::activation_name() const {
  const std::string given = options.at("activation").get<std::string>();
  return given != "default" ? given : gated() ? "silu" : "gelu";
}

Activation ModelConfig::activation() const {
  const std::string name = activation_name();
  return name == "silu" ? Activation::silu : name == "gelu" ? Activation::gelu : Activation::gelu_tanh;
}

BlockImpl::BlockImpl(const ModelConfig& c, int64_t layer, at::Device device) : parallel_(c.parallel()) {
  const auto kind = c.gated() ? NormKind::rms : NormKind::layer;
  const double eps = c.options.at("norm_eps").get<double>();
  const Setting setting{.hidden_size = c.hidden_size(),
                        .memory_size = c.hidden_size(),
                        .layer = layer,
                        .num_layers = c.num_layers(),
                        .causal = c.causal(),
                        .max_position = c.context,
                        .options = c.attention,
                        .device = device};
  nlohmann::json exact = c.attention;
  exact["window_mask"] = "exact";
  window_ = layer_window({.layer = layer, .causal = c.causal(), .options = exact});
  self_attn = register_module("self_attn", make_mechanism(setting));
  input_layernorm = register_module("input_layernorm", Norm(c.hidden_size(), kind, eps, device));
  post_attention_layernorm = register_module("post_attention_layernorm", Norm(c.hidden_size(), kind, eps, device));
  mlp = register_module("mlp", FeedForward(c.hidden_size(), c.intermediate_size(), c.activation(), c.gated(), device));
}

Tensor BlockImpl::forward(const Tensor& x, const Positions& at, const Tensor& memory, const Positions& memory_at) {
  return after(x, self_attn->forward(input_layernorm(x), at, memory, memory_at));
}

Tensor BlockImpl::after(const Tensor& x, const Tensor& attended) {
  if (parallel_) return x + attended + mlp(post_attention_layernorm(x));
  const Tensor h = x + attended;
  return h + mlp(post_attention_layernorm(h));
}

}  // namespace motet
