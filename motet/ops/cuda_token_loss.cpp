#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "token_loss";

/// The operands of a call, and the tensors that they lie in. The logits stay in their own dtype.
struct Scored {
  Tensor logits_BTV, targets_BT;
  cuda::TokenLoss plain;

  Scored(const Tensor& logits, const Tensor& targets)
      : logits_BTV(logits.stride(2) == 1 || logits.size(2) == 1 ? logits : logits.contiguous()),
        targets_BT(targets.contiguous()),
        plain{.rows = targets_BT.numel(),
              .classes = logits.size(2),
              .logits = {logits_BTV.const_data_ptr(), number_type(logits_BTV), logits_BTV.stride(1)},
              .group = logits.size(1),
              .group_stride = logits_BTV.stride(0),
              .targets = targets_BT.const_data_ptr<int64_t>()} {}
};

class CudaTokenLoss : public torch::autograd::Function<CudaTokenLoss> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& logits, const Tensor& targets,
                        bool mean, const cuda::StepKernels* kernels) {
    const CudaCall call(logits, *kernels);
    const Scored operands(logits, targets);
    const auto floats = [&](at::IntArrayRef shape) { return at::empty(shape, logits.options().dtype(at::kFloat)); };
    const Tensor losses_BT = floats(targets.sizes()), normalizers_M2 = floats({operands.plain.rows, 2});
    Tensor loss, count;
    cuda::TokenLosses made{losses_BT.mutable_data_ptr<float>(), normalizers_M2.mutable_data_ptr<float>()};
    if (mean) {
      loss = floats({}), count = floats({});
      made.mean = loss.mutable_data_ptr<float>(), made.count = count.mutable_data_ptr<float>();
    }
    CudaCall::check(kName, kernels->token_loss(operands.plain, made, call.run()));
    context->save_for_backward({logits, targets, normalizers_M2, count});
    keep_kernels(context, *kernels);
    return mean ? loss : losses_BT;
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const cuda::StepKernels& kernels = kept_kernels(context, kName);
    const auto saved = context->get_saved_variables();
    const Tensor &logits = saved[0], &normalizers_M2 = saved[2], &count = saved[3];
    const CudaCall call(logits, kernels);
    const Scored operands(logits, saved[1]);
    const Tensor d = gradients[0].contiguous(), dlogits = at::empty(logits.sizes(), logits.options());
    const cuda::TokenLossIncoming from{d.const_data_ptr<float>(), normalizers_M2.const_data_ptr<float>(),
                                       count.defined() ? count.const_data_ptr<float>() : nullptr};
    CudaCall::check(kName, kernels.token_loss_backward(operands.plain, from, dlogits.mutable_data_ptr(), call.run()));
    return {dlogits, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::string cuda_token_loss_why_not(const Tensor& logits, const Tensor& targets) {
  if (!has_number_type(logits)) return c10::str("logits has dtype ", logits.scalar_type());
  if (logits.numel() == 0) return "there are no logits";
  if (targets.numel() > INT32_MAX) return "more targets than 31 bits count";
  return targets.scalar_type() == at::kLong ? "" : "targets in int64 alone";
}

Tensor cuda_token_loss(const Tensor& logits, const Tensor& targets, Loss loss, const cuda::StepKernels& kernels) {
  return CudaTokenLoss::apply(logits, targets, loss == Loss::mean, &kernels);
}

}  // namespace motet
