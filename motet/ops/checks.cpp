#include "motet/ops/checks.h"

#include <ATen/autocast_mode.h>

namespace motet {

void check_vector(const char* function, const Tensor& weight, const char* name, const Tensor& x) {
  if (!weight.defined()) return;
  check_device(function, weight, name, x);
  TORCH_CHECK_VALUE(weight.dim() == 1 && x.dim() >= 1 && weight.size(0) == x.size(-1), function, ": ", name,
                    " has shape ", weight.sizes(), ", want [", x.dim() >= 1 ? x.size(-1) : 0, "]");
}

std::string why_not_rows(const Tensor& x) {
  return at::GradMode::is_enabled() ? "gradients are on" : why_not_floats(x);
}

std::string why_not_floats(const Tensor& x) {
  if (!x.is_cpu()) return "only on the CPU";
  if (x.scalar_type() != at::kFloat) return "float32 alone";
  if (!x.is_contiguous()) return "x has gaps";
  if (x.numel() == 0) return "x is empty";
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  return "";
}

}  // namespace motet
