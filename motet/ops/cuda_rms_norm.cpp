#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "rms_norm";

/// The operands of a call, and the tensors that they lie in.
struct Norm {
  Tensor rows, weight;
  at::ScalarType out_type;
  cuda::RmsNorm plain;

  Norm(const Tensor& x, const Tensor& given, double eps)
      : rows(as_rows(x)),
        weight(given.defined() ? given.contiguous() : given),
        out_type(given.defined() ? at::promote_types(x.scalar_type(), given.scalar_type()) : x.scalar_type()),
        plain{.rows = rows.size(0), .columns = rows.size(1), .x = plain_rows(rows), .eps = static_cast<float>(eps)} {
    plain.out_type = plain.x.type;
    if (!weight.defined()) return;
    plain.weight = weight.const_data_ptr(), plain.weight_type = number_type(weight);
    if (plain.weight_type != plain.x.type) plain.out_type = NumberType::float32;
  }
};

class CudaRmsNorm : public torch::autograd::Function<CudaRmsNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const std::optional<Tensor>& weight,
                        double eps, const cuda::StepKernels* kernels) {
    const CudaCall call(x, *kernels);
    const Norm norm(x, weight.value_or(Tensor()), eps);
    const Tensor y = at::empty(x.sizes(), x.options().dtype(norm.out_type));
    const Tensor inverse_M = at::empty({norm.plain.rows}, x.options().dtype(at::kFloat));
    CudaCall::check(
        kName, kernels->rms_norm(norm.plain, y.mutable_data_ptr(), inverse_M.mutable_data_ptr<float>(), call.run()));
    context->save_for_backward({x, inverse_M, weight.value_or(Tensor())});
    context->saved_data["eps"] = eps;
    keep_kernels(context, *kernels);
    return y;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const cuda::StepKernels& kernels = kept_kernels(context, kName);
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &inverse_M = saved[1], &weight = saved[2];
    CudaCall call(x, kernels);
    const Norm norm(x, weight, context->saved_data["eps"].toDouble());
    Tensor dx, dweight;
    cuda::RmsNormGradients to;
    if (context->needs_input_grad(0)) dx = at::empty(x.sizes(), x.options()), to.x = dx.mutable_data_ptr();
    if (weight.defined() && context->needs_input_grad(1)) {
      dweight = at::empty(weight.sizes(), weight.options()), to.weight = dweight.mutable_data_ptr();
      call.reserve(kernels.rms_norm_workspace(norm.plain));
    }
    const Tensor dy = gradients[0].contiguous();
    CudaCall::check(kName, kernels.rms_norm_backward(norm.plain, inverse_M.const_data_ptr<float>(), dy.const_data_ptr(),
                                                     to, call.run()));
    return {dx, dweight, Tensor(), Tensor()};
  }
};

}  // namespace

std::string cuda_rms_norm_why_not(const Tensor& x, const Tensor& weight) {
  if (std::string reason = why_not_numbers(x, "x"); !reason.empty()) return reason;
  if (x.size(-1) > cuda::kMaxNormColumns) return "more than 16384 columns";
  return weight.defined() ? why_not_numbers(weight, "weight") : "";
}

Tensor cuda_rms_norm(const Tensor& x, const Tensor& weight, double eps, const cuda::StepKernels& kernels) {
  return CudaRmsNorm::apply(x, weight.defined() ? std::optional(weight) : std::nullopt, eps, &kernels);
}

}  // namespace motet
