#pragma once
#include <string>

#include "motet/ops/torch.h"

// What every function of ops.h asks of its operands, and what the rows `rows` (motet/kernels) ask on top.
namespace motet {

/// Throws c10::ValueError unless t, if defined, is on the device of x.
inline void check_device(const char* function, const Tensor& t, const char* name, const Tensor& x,
                         const char* x_name = "x") {
  TORCH_CHECK_VALUE(!t.defined() || t.device() == x.device(), function, ": ", name, " is on ", t.device(), ", want ",
                    x_name, "'s device ", x.device());
}

/// Throws c10::ValueError unless a weight, if defined, is on x's device, in x's dtype or one that autocast casts, and
/// [C].
void check_vector(const char* function, const Tensor& weight_C, const char* name, const Tensor& x);

/// Why the CPU kernels do not take x: they want float32 on the CPU, without gaps, at least one number, and that nothing
/// asks for autocast. "": they do.
std::string why_not_floats(const Tensor& x);
/// The same of those that have no backward pass: nothing may ask for a gradient either.
std::string why_not_rows(const Tensor& x);

}  // namespace motet
