#include "motet/layers/norms.h"

#include "motet/kernels/rows.h"
#include "motet/layers/linear.h"

namespace motet {
namespace {

// One node instead of eight: RMS norm is called twice a layer and torch's CPU path is composed of single operations.
class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const std::optional<Tensor>& weight,
                        double eps) {
    const Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const Tensor length = at::linalg_vector_norm(wide, 2, {-1}, true);
    const Tensor inverse = length.pow_(2).div_(static_cast<double>(x.size(-1))).add_(eps).rsqrt_();
    const Tensor normed = (wide * inverse).to(x.scalar_type());
    context->save_for_backward({x, inverse, weight.value_or(Tensor())});
    return weight ? normed * *weight : normed;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &inverse = saved[1], &weight = saved[2];
    const Tensor normed = x.to(inverse.scalar_type()) * inverse;
    Tensor g = gradients[0].to(inverse.scalar_type()), dweight;
    if (weight.defined()) {
      dweight = (g * normed).flatten(0, -2).sum(0).to(weight.scalar_type());
      g = g * weight;
    }
    const Tensor along = at::linalg_vecdot(g, normed, -1).unsqueeze(-1).div_(static_cast<double>(x.size(-1)));
    const Tensor dx = at::addcmul(g, normed, along, -1).mul_(inverse);
    return {dx.to(x.scalar_type()), dweight, Tensor()};
  }
};

// The kernel takes x and the parameters: rows(x, M, y) on parts of the rows.
template <class Rows>
Tensor over_rows(const Tensor& x, const Rows& rows) {
  const int64_t K = x.size(-1), M = x.numel() / std::max<int64_t>(K, 1);
  const Tensor y = at::empty(x.sizes(), x.options());
  const float* const from = x.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  over_parts(M, (1 << 15) / std::max<int64_t>(K, 1) + 1,
             [&](int64_t begin, int64_t end) { rows(from + begin * K, end - begin, K, to + begin * K); });
  return y;
}

bool norm_for_kernels(const Tensor& x, const Tensor& weight) {
  return for_kernels(x) && x.numel() > 0 &&
         (!weight.defined() || (weight.scalar_type() == at::kFloat && weight.is_contiguous()));
}

}  // namespace

Tensor rms_norm(const Tensor& given, const Tensor& weight, double eps) {
  const Tensor x = at::GradMode::is_enabled() ? given : given.contiguous();
  if (norm_for_kernels(x, weight)) {
    const float* const w = weight.defined() ? weight.const_data_ptr<float>() : nullptr;
    return over_rows(x, [&](const float* from, int64_t M, int64_t K, float* to) {
      rms_norm_rows(from, M, K, w, static_cast<float>(eps), to);
    });
  }
  return RmsNorm::apply(x, weight.defined() ? std::optional<Tensor>(weight) : std::nullopt, eps);
}

NormImpl::NormImpl(int64_t width, NormKind kind, double eps, at::Device device)
    : width_(width), kind_(kind), eps_(eps) {
  if (kind != NormKind::rms_plain) weight = register_parameter("weight", at::ones({width}, device));
  if (kind == NormKind::layer) bias = register_parameter("bias", at::zeros({width}, device));
}

Tensor NormImpl::forward(const Tensor& x) {
  if (kind_ == NormKind::layer && norm_for_kernels(x, weight))
    return over_rows(x, [&](const float* from, int64_t M, int64_t K, float* to) {
      layer_norm_rows(from, M, K, weight.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                      static_cast<float>(eps_), to);
    });
  if (kind_ == NormKind::layer) return at::layer_norm(x, {width_}, weight, bias, eps_);
  return rms_norm(x, weight, eps_);
}

}  // namespace motet
