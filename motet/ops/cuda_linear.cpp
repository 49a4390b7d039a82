#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "linear";
constexpr int64_t kMostRows = 64;  // from there on one reading of widened weights beats several of these

bool in_place(const Tensor& t) {
  return t.is_contiguous() && reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
}

std::string why_not_layer(const LinearLayer& layer) {
  const auto& [values, scale, kept, mapped] = layer.weight_NK;
  if (!kept) return "weights that are not kept in fewer bits";
  if (values.numel() == 0 || values.size(1) % 4) return "rows of weights that are no multiple of 4";
  if (values.numel() > INT32_MAX) return "weights of more numbers than 31 bits count";
  if (!in_place(values)) return "weights that do not lie at a multiple of 16 bytes";
  if (layer.bias_N.defined() && (layer.bias_N.scalar_type() != at::kFloat || !layer.bias_N.is_contiguous()))
    return "bias in float32 alone";
  return "";
}

}  // namespace

std::string cuda_linear_why_not(const Tensor& x, std::span<const LinearLayer> layers) {
  if (at::GradMode::is_enabled()) return "gradients are on";
  if (x.scalar_type() != at::kFloat) return "x in float32 alone";
  if (x.numel() == 0 || x.numel() / x.size(-1) > kMostRows) return "more than 64 rows";
  if (!in_place(x)) return "x that has gaps or does not lie at a multiple of 16 bytes";
  for (const LinearLayer& layer : layers)
    if (std::string reason = why_not_layer(layer); !reason.empty()) return reason;
  return "";
}

std::vector<Tensor> cuda_linear(const Tensor& x, std::span<const LinearLayer> layers,
                                const cuda::StepKernels& kernels) {
  const CudaCall call(x, kernels);
  std::vector<int64_t> shape = x.sizes().vec();
  std::vector<Tensor> made;
  const int64_t rows = x.numel() / x.size(-1);
  const auto floats = [](const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; };
  for (const LinearLayer& layer : layers) {
    const Tensor &values = layer.weight_NK.values_NK, &scale = layer.weight_NK.scale_N;
    shape.back() = values.size(0);
    made.push_back(at::empty(shape, x.options()));
    for (int64_t first = 0; first < rows; first += cuda::kMostKeptRows) {
      const cuda::KeptLinear plain{.rows = std::min<int64_t>(rows - first, cuda::kMostKeptRows),
                                   .outputs = values.size(0),
                                   .columns = values.size(1),
                                   .x = x.const_data_ptr<float>() + first * values.size(1),
                                   .weight = values.const_data_ptr(),
                                   .type = number_type(values),
                                   .scale = floats(scale),
                                   .bias = floats(layer.bias_N)};
      float* const y = made.back().mutable_data_ptr<float>() + first * plain.outputs;
      CudaCall::check(kName, kernels.kept_linear(plain, y, call.run()));
    }
  }
  return made;
}

}  // namespace motet
