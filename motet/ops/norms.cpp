#include "motet/kernels/rows.h"
#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

struct NormArguments {
  const Tensor &x, &weight, &bias;
  double eps;
};

// One node instead of eight: RMS norm is called twice a layer and torch's CPU path is composed of single operations.
class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const std::optional<Tensor>& weight,
                        double eps) {
    const Tensor wide = wide_of(x), inverse = inverse_of(wide, eps);
    const Tensor normed = (wide * inverse).to(x.scalar_type());
    context->save_for_backward({x, inverse, weight.value_or(Tensor())});
    context->saved_data["eps"] = eps;
    return weight ? normed * *weight : normed;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[2], wide = wide_of(x);
    // A second derivative looks through it, too; what is saved is a number to it.
    const bool twice = at::GradMode::is_enabled();
    const Tensor inverse = twice ? inverse_of(wide, context->saved_data["eps"].toDouble()) : saved[1];
    const Tensor normed = wide * inverse;
    Tensor g = gradients[0].to(inverse.scalar_type()), dweight;
    if (weight.defined()) {
      dweight = (g * normed).flatten(0, -2).sum(0).to(weight.scalar_type());
      g = g * weight;
    }
    const Tensor along = at::linalg_vecdot(g, normed, -1).unsqueeze(-1).div_(static_cast<double>(x.size(-1)));
    const Tensor dx = at::addcmul(g, normed, along, -1).mul_(inverse);
    return {dx.to(x.scalar_type()), dweight, Tensor()};
  }

 private:
  static Tensor wide_of(const Tensor& x) { return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }
  static Tensor inverse_of(const Tensor& wide, double eps) {
    const Tensor length = at::linalg_vector_norm(wide, 2, {-1}, true);
    return length.pow(2).div_(static_cast<double>(wide.size(-1))).add_(eps).rsqrt_();
  }
};

std::string why_not(const NormArguments& a) {
  for (const Tensor* t : {&a.weight, &a.bias})
    if (t->defined() && (t->scalar_type() != at::kFloat || !t->is_contiguous())) return "weight in float32 alone";
  return why_not_rows(a.x);
}

// The kernel takes rows(x, M, K, y) on parts of the rows.
template <class Rows>
Tensor over_rows(const Tensor& x, const Rows& rows) {
  const int64_t K = x.size(-1), M = x.numel() / K;
  const Tensor y = at::empty(x.sizes(), x.options());
  const float* const from = x.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  torch_threads().run_parts(M, (1 << 15) / K + 1, [&](int64_t begin, int64_t end) {
    rows(from + begin * K, end - begin, K, to + begin * K);
  });
  return y;
}

const float* numbers(const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }

Tensor rms_rows(const NormArguments& a) {
  return over_rows(a.x, [&](const float* from, int64_t M, int64_t K, float* to) {
    rms_norm_rows(from, M, K, numbers(a.weight), static_cast<float>(a.eps), to);
  });
}

Tensor layer_rows(const NormArguments& a) {
  return over_rows(a.x, [&](const float* from, int64_t M, int64_t K, float* to) {
    layer_norm_rows(from, M, K, numbers(a.weight), numbers(a.bias), static_cast<float>(a.eps), to);
  });
}

std::string takes_all(const NormArguments&) { return ""; }

const auto& rms_table() {
  static const Kernels<NormArguments, Tensor, 3> table(
      "rms_norm",
      {{{"cuda",
         [](const NormArguments& a) { return why_not_step(a.x, [&] { return cuda_rms_norm_why_not(a.x, a.weight); }); },
         [](const NormArguments& a) { return cuda_rms_norm(a.x, a.weight, a.eps, *step_library()); }},
        {"rows", why_not, rms_rows},
        {"torch", takes_all, [](const NormArguments& a) {
           return RmsNorm::apply(a.x, a.weight.defined() ? std::optional(a.weight) : std::nullopt, a.eps);
         }}}});
  return table;
}

const auto& layer_table() {
  static const Kernels<NormArguments, Tensor, 2> table(
      "layer_norm", {{{"rows", why_not, layer_rows}, {"torch", takes_all, [](const NormArguments& a) {
                                                        return at::layer_norm(a.x, {a.x.size(-1)}, a.weight, a.bias,
                                                                              a.eps);
                                                      }}}});
  return table;
}

}  // namespace

const KernelTable& rms_norm_table() { return rms_table().names(); }
const KernelTable& layer_norm_table() { return layer_table().names(); }

Tensor ops::rms_norm(const Tensor& given, const Tensor& weight, double eps, const char* kernel) {
  check_vector("rms_norm", weight, "weight", given);
  const Tensor x = at::GradMode::is_enabled() || !given.is_cpu() ? given : given.contiguous();
  return rms_table()(x, {x, weight, Tensor(), eps}, kernel);
}

Tensor ops::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, const char* kernel) {
  check_vector("layer_norm", weight, "weight", x);
  check_vector("layer_norm", bias, "bias", x);
  TORCH_CHECK_VALUE(weight.defined() && bias.defined(), "layer_norm: weight or bias is missing, want both");
  return layer_table()(x, {x, weight, bias, eps}, kernel);
}

}  // namespace motet
