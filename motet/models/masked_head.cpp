#include "motet/models/masked_head.h"

namespace motet {

MaskedHeadImpl::MaskedHeadImpl(const ModelConfig& c, at::Device device) : activation_(c.activation()) {
  const int64_t width = c.embedding_width();
  dense = register_module("dense", Linear(c.hidden_size(), width, true, device));
  norm = register_module("norm", Norm(width, c.norm_kind(), c.options.norm_eps, device));
  bias = register_parameter("bias", at::zeros({c.vocab_size}, device));
}

Tensor MaskedHeadImpl::forward(const Tensor& hidden) { return norm(activated(dense(hidden), activation_)); }

}  // namespace motet
