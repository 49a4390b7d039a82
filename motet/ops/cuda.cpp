#include "motet/ops/cuda.h"

#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {

const cuda::StepKernels* step_library() {
  static const auto* const kernels = cuda_kernels<cuda::StepKernels>("motet_cuda_kernels");
  return kernels;
}

std::string why_not_step_library(const Tensor& x) {
  return why_not_cuda(x, step_library, [](const cuda::StepKernels& kernels) { return kernels.why_not(); });
}

constexpr int64_t kBesideTheLast = 1024;  // threads of the last block count on behind it

std::string why_not_numbers(const Tensor& x, const char* name) {
  if (!has_number_type(x)) return c10::str(name, " has dtype ", x.scalar_type());
  if (x.numel() == 0 || x.dim() == 0) return c10::str(name, " has no rows");
  if (x.numel() > INT32_MAX - kBesideTheLast) return c10::str(name, " has more numbers than 31 bits count");
  return "";
}

Tensor as_rows(const Tensor& x) {
  const Tensor rows = x.reshape({-1, x.size(-1)});
  return rows.stride(1) == 1 || rows.size(1) == 1 ? rows : rows.contiguous();
}

cuda::Rows plain_rows(const Tensor& rows) { return {rows.const_data_ptr(), number_type(rows), rows.stride(0)}; }

void keep_kernels(torch::autograd::AutogradContext* context, const cuda::StepKernels& kernels) {
  context->saved_data["kernels"] = reinterpret_cast<int64_t>(&kernels);
}

const cuda::StepKernels& kept_kernels(torch::autograd::AutogradContext* context, const char* function) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), function,
                              ": the kernel cuda has no second derivatives, want the kernel torch");
  return *reinterpret_cast<const cuda::StepKernels*>(context->saved_data["kernels"].toInt());
}

}  // namespace motet
