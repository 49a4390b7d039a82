#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "silu_times";

/// The operands of a call, and the tensors that they lie in.
struct Gated {
  Tensor gate_MK, up_MK;
  cuda::SiluTimes plain;

  Gated(const Tensor& gate, const Tensor& up)
      : gate_MK(as_rows(gate)),
        up_MK(as_rows(up)),
        plain{gate_MK.size(0), gate_MK.size(1), plain_rows(gate_MK), plain_rows(up_MK)} {
    plain.out_type = plain.gate.type == plain.up.type ? plain.gate.type : NumberType::float32;
  }
};

class CudaSiluTimes : public torch::autograd::Function<CudaSiluTimes> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& gate, const Tensor& up,
                        const cuda::StepKernels* kernels) {
    context->save_for_backward({gate, up});
    keep_kernels(context, *kernels);
    const CudaCall call(gate, *kernels);
    const Gated operands(gate, up);
    const Tensor y =
        at::empty(gate.sizes(), gate.options().dtype(at::promote_types(gate.scalar_type(), up.scalar_type())));
    CudaCall::check(kName, kernels->silu_times(operands.plain, y.mutable_data_ptr(), call.run()));
    return y;
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const cuda::StepKernels& kernels = kept_kernels(context, kName);
    const auto saved = context->get_saved_variables();
    const CudaCall call(saved[0], kernels);
    const Gated operands(saved[0], saved[1]);
    std::vector<Tensor> made(3);
    for (const size_t i : {0, 1})
      if (context->needs_input_grad(i)) made[i] = at::empty(saved[i].sizes(), saved[i].options());
    const auto place = [](const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; };
    const Tensor dy = gradients[0].contiguous();
    CudaCall::check(kName, kernels.silu_times_backward(operands.plain, dy.const_data_ptr(),
                                                       {place(made[0]), place(made[1])}, call.run()));
    return made;
  }
};

}  // namespace

std::string cuda_silu_times_why_not(const Tensor& gate, const Tensor& up) {
  std::string reason = why_not_numbers(gate, "gate");
  return reason.empty() ? why_not_numbers(up, "up") : reason;
}

Tensor cuda_silu_times(const Tensor& gate, const Tensor& up, const cuda::StepKernels& kernels) {
  return CudaSiluTimes::apply(gate, up, &kernels);
}

}  // namespace motet
