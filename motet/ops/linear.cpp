#include "motet/kernels/linear_tiles.h"

#include "motet/core/instructions.h"
#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

struct LinearArguments {
  const Tensor& x;
  std::span<const LinearLayer> layers;
};
using Outputs = std::vector<Tensor>;

void check(const Tensor& x, const LinearLayer& layer) {
  const Tensor& w = layer.weight_NK.values_NK;
  check_device("linear", w, "weight", x);
  check_device("linear", layer.weight_NK.scale_N, "scale", x);
  check_device("linear", layer.bias_N, "bias", x);
  TORCH_CHECK_VALUE(x.dim() >= 1 && w.dim() == 2 && w.size(1) == x.size(-1), "linear: x has shape ", x.sizes(),
                    " and weight ", w.sizes(), ", want [...,K] and [N,K]");
  const auto check_numbers = [&](const Tensor& t, const char* name) {
    TORCH_CHECK_VALUE(!t.defined() || (t.dim() == 1 && t.size(0) == w.size(0)), "linear: ", name, " has shape ",
                      t.sizes(), ", want [", w.size(0), "]");
  };
  check_numbers(layer.bias_N, "bias");
  check_numbers(layer.weight_NK.scale_N, "scale");
}

Precision precision(const LinearArguments& a) {
  return a.layers.empty() ? Precision::highest : a.layers.front().precision;
}

std::string why_not_plain(const LinearArguments& a) {
  if (std::string reason = why_not_rows(a.x); !reason.empty()) return reason;
  for (const LinearLayer& layer : a.layers) {
    const Tensor& w = layer.weight_NK.values_NK;
    if (!layer.weight_NK.kept && w.scalar_type() != at::kFloat) return "weights in float32 or kept alone";
    if (!w.is_contiguous()) return "weight has gaps";
    if (const Tensor& scale = layer.weight_NK.scale_N;
        scale.defined() && (scale.scalar_type() != at::kFloat || !scale.is_contiguous()))
      return "scale in float32 alone";
    if (layer.bias_N.defined() && (layer.bias_N.scalar_type() != at::kFloat || !layer.bias_N.is_contiguous()))
      return "bias in float32 alone";
  }
  return "";
}

std::string why_not(const LinearArguments& a) {
  return precision(a) == Precision::high ? "precision is high, which tiles alone has" : why_not_plain(a);
}

// Takes nothing that rows does not, and so runs only by its name; but the precision high it takes alone.
std::string why_not_tiles(const LinearArguments& a) {
#if defined(__x86_64__)
  if (std::string reason = why_not_amx(); !reason.empty()) return reason;
  return why_not_plain(a);
#else
  return "only on x86-64";
#endif
}

Weight with_bias(const LinearLayer& layer) {
  Weight w = as_weight(layer.weight_NK);
  if (layer.bias_N.defined()) w.bias = layer.bias_N.const_data_ptr<float>();
  return w;
}

using Tasks = std::span<const LinearTask>;
template <class Kernel>
Outputs run_plain(const LinearArguments& a, const Kernel& kernel) {
  Outputs made;
  c10::SmallVector<LinearTask, 4> tasks;
  c10::SmallVector<int64_t, 5> shape(a.x.sizes());
  for (const LinearLayer& layer : a.layers) {
    shape.back() = layer.weight_NK.values_NK.size(0);
    made.push_back(at::empty(shape, a.x.options()));
    tasks.push_back({with_bias(layer), made.back().mutable_data_ptr<float>()});
  }
  kernel(Tasks(tasks.data(), tasks.size()), a.x.const_data_ptr<float>(), a.x.numel() / a.x.size(-1));
  return made;
}

Outputs run_rows(const LinearArguments& a) {
  return run_plain(a, [](Tasks tasks, const float* x, int64_t M) { linear(tasks, x, M, torch_threads()); });
}

Outputs run_tiles(const LinearArguments& a) {
  return run_plain(
      a, [&](Tasks tasks, const float* x, int64_t M) { linear_by_tiles(tasks, x, M, precision(a), torch_threads()); });
}

std::string why_not_on_a_gpu(const LinearArguments& a) {
  if (precision(a) == Precision::high) return "precision is high, which tiles alone has";
  return why_not_step(a.x, [&] { return cuda_linear_why_not(a.x, a.layers); });
}

Outputs run_torch(const LinearArguments& a) {
  Outputs made;
  for (const LinearLayer& layer : a.layers) made.push_back(at::linear(a.x, widened(layer.weight_NK), layer.bias_N));
  return made;
}

const auto& linear_kernels() {
  static const Kernels<LinearArguments, Outputs, 4> table(
      "linear", {{{"cuda", why_not_on_a_gpu,
                   [](const LinearArguments& a) { return cuda_linear(a.x, a.layers, *step_library()); }},
                  {"rows", why_not, run_rows},
                  {"tiles", why_not_tiles, run_tiles},
                  {"torch", [](const LinearArguments&) { return std::string(); }, run_torch}}});
  return table;
}

}  // namespace

const KernelTable& linear_table() { return linear_kernels().names(); }

std::vector<Tensor> ops::linear_together(const Tensor& x, std::span<const LinearLayer> layers, const char* kernel) {
  for (const LinearLayer& layer : layers) check(x, layer);
  return linear_kernels()(x, {x, layers}, kernel);
}

Tensor ops::linear(const Tensor& x, const LinearLayer& layer, const char* kernel) {
  return ops::linear_together(x, std::span(&layer, 1), kernel)[0];
}

}  // namespace motet
