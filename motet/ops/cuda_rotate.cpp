#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "rotate";

// y is the only copy: x may be a slice of a fused projection.
Tensor turned(const Tensor& given, const Rotation& by, bool back, const cuda::StepKernels& kernels) {
  const CudaCall call(given, kernels);
  const Tensor x = given.stride(3) == 1 || given.size(3) == 1 ? given : given.contiguous();
  const Tensor cos = by.cos.contiguous(), sin = by.sin.contiguous(), y = at::empty(x.sizes(), x.options());
  const int64_t T = x.size(1), pairs = cos.size(3);
  const cuda::HeadRotation plain{.B = x.size(0),
                                 .T = T,
                                 .H = x.size(2),
                                 .D = x.size(3),
                                 .pairs = pairs,
                                 .x = x.const_data_ptr(),
                                 .type = number_type(x),
                                 .batch_stride = x.stride(0),
                                 .row_stride = x.stride(1),
                                 .head_stride = x.stride(2),
                                 .cos = cos.const_data_ptr<float>(),
                                 .sin = sin.const_data_ptr<float>(),
                                 .table_stride = cos.size(0) == 1 ? 0 : T * pairs,
                                 .interleaved = by.interleaved,
                                 .back = back};
  CudaCall::check(kName, kernels.rotate(plain, y.mutable_data_ptr(), call.run()));
  return y;
}

class CudaRotate : public torch::autograd::Function<CudaRotate> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& cos,
                        const Tensor& sin, bool interleaved, const cuda::StepKernels* kernels) {
    context->save_for_backward({cos, sin});
    context->saved_data["interleaved"] = interleaved;
    keep_kernels(context, *kernels);
    return turned(x, {cos, sin, interleaved}, false, *kernels);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const cuda::StepKernels& kernels = kept_kernels(context, kName);
    const auto saved = context->get_saved_variables();
    const Rotation by{saved[0], saved[1], context->saved_data["interleaved"].toBool()};
    return {turned(gradients[0], by, true, kernels), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::string cuda_rotate_why_not(const Tensor& x, const Rotation& by) {
  for (const Tensor* table : {&by.cos, &by.sin})
    if (table->scalar_type() != at::kFloat) return "tables in float32 alone";
  return why_not_numbers(x, "x");
}

Tensor cuda_rotate(const Tensor& x, const Rotation& by, const cuda::StepKernels& kernels) {
  return CudaRotate::apply(x, by.cos, by.sin, by.interleaved, &kernels);
}

}  // namespace motet
