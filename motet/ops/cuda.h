#pragma once
#include "motet/kernels/cuda/step.h"
#include "motet/ops/ops.h"

// The CUDA kernels of a step beside attention as functions of tensors, each the row `cuda` of its table. They
// take kernels of the caller's choice: the rows those of libmotet_cuda.so, tests the emulated ones, on tensors of the
// CPU. Dtypes and shapes of results are those of the row `torch`; gradients are made where they are wanted, once:
// second derivatives are refused with c10::NotImplementedError.
namespace motet {

/// The kernels of libmotet_cuda.so; null where there are none.
const cuda::StepKernels* step_library();
/// Why they do not run where x lies; "" when they do.
std::string why_not_step_library(const Tensor& x);
/// Why a row `cuda` does not run: the library's reason, or the one that `then` finds in the operands.
template <class Then>
std::string why_not_step(const Tensor& x, const Then& then) {
  std::string reason = why_not_step_library(x);
  return reason.empty() ? then() : reason;
}

// Why the kernels do not take the operands, wherever those lie; "" when they do.
std::string cuda_rms_norm_why_not(const Tensor& x, const Tensor& weight_C);
std::string cuda_rotate_why_not(const Tensor& x_BTHD, const Rotation&);
std::string cuda_silu_times_why_not(const Tensor& gate, const Tensor& up);
std::string cuda_token_loss_why_not(const Tensor& logits_BTV, const Tensor& targets_BT);
std::string cuda_dcmha_maps_why_not(const Tensor& x_BTC, const DcmhaGenerator&);
std::string cuda_linear_why_not(const Tensor& x, std::span<const LinearLayer>);

Tensor cuda_rms_norm(const Tensor& x, const Tensor& weight_C, double eps, const cuda::StepKernels&);
Tensor cuda_rotate(const Tensor& x_BTHD, const Rotation&, const cuda::StepKernels&);
Tensor cuda_silu_times(const Tensor& gate, const Tensor& up, const cuda::StepKernels&);
/// A target of -100 has the loss 0 and counts for nothing, as in torch's; the loss of any other that is no class is not
/// a number, where torch's row stops the program.
Tensor cuda_token_loss(const Tensor& logits_BTV, const Tensor& targets_BT, Loss, const cuda::StepKernels&);
/// The products are torch's, what is made of them the kernel's.
std::vector<DcmhaMaps> cuda_dcmha_maps(const Tensor& x_BTC, const DcmhaGenerator&, const cuda::StepKernels&);

/// Layers whose weights are kept in fewer bits, of up to 64 rows in float32, without gradients.
std::vector<Tensor> cuda_linear(const Tensor& x, std::span<const LinearLayer>, const cuda::StepKernels&);

/// What DCMHA's generator multiplies of x [B,T,C]: maps [G P, B T, 2 R N/G] and gates [B,T,P N]; undefined where it has
/// none.
struct DcmhaProducts {
  int64_t batch = 0, count = 0;  // B, T
  Tensor maps_QSX = {}, gates_BTX = {};
};
/// Of one group of heads.
std::vector<DcmhaMaps> cuda_dcmha_split(const DcmhaProducts&, const DcmhaGenerator&, double eps,
                                        const cuda::StepKernels&);

// ---- what their autograd functions share ---------------------------------------------------------------------------

/// Why kernels do not take x's numbers; "" when they do: float32, bfloat16 or float16, at least one and fewer than
/// 2^31.
std::string why_not_numbers(const Tensor& x, const char* name);
/// x [...,K] as [rows,K], each row without gaps; a view where it can be.
Tensor as_rows(const Tensor& x);
cuda::Rows plain_rows(const Tensor& rows_MK);

/// The kernels of a call are those of its backward pass.
void keep_kernels(torch::autograd::AutogradContext*, const cuda::StepKernels&);
/// Throws c10::NotImplementedError when the backward pass is to be differentiated itself.
const cuda::StepKernels& kept_kernels(torch::autograd::AutogradContext*, const char* function);

}  // namespace motet
