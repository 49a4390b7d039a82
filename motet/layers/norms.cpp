#include "motet/layers/norms.h"

#include "motet/ops/ops.h"

namespace motet {

NormImpl::NormImpl(int64_t width, NormKind kind, double eps, at::Device device) : kind_(kind), eps_(eps) {
  if (kind != NormKind::rms_plain) weight = register_parameter("weight", at::ones({width}, device));
  if (kind == NormKind::layer) bias = register_parameter("bias", at::zeros({width}, device));
}

Tensor NormImpl::forward(const Tensor& x) {
  return kind_ == NormKind::layer ? ops::layer_norm(x, weight, bias, eps_) : ops::rms_norm(x, weight, eps_);
}

}  // namespace motet
