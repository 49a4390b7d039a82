// Runs of attention that are timed: our operator, PyTorch's SDPA, the definition, the eager form, forward or with
// backward.
#pragma once

#include <functional>
#include <vector>

#include "motet/attention/parts.h"

namespace motet {

/// out [B,T,Ho,E] of the arguments.
using Forward = Tensor (*)(const Arguments&);

Tensor run_operator(const Arguments&);
/// PyTorch's scaled_dot_product_attention of q, k, v alone, causal where T = S > 1.
Tensor run_sdpa(const Arguments&);
/// The same by one backend of PyTorch's alone. Throws c10::Error where that one cannot run it.
Tensor run_flash(const Arguments&);
Tensor run_cudnn(const Arguments&);
/// The definition in eager torch operations.
Tensor run_definition(const Arguments&);
/// The same with every intermediate in the arguments' dtype, as users write it (attention/eager.h).
Tensor run_eager(const Arguments&);

/// The arguments as leaves of autograd in the dtype, on the device.
Arguments as_leaves(Arguments, at::ScalarType, at::Device = at::kCPU);

/// Normal numbers in t's shape and dtype and on its device, drawn on the CPU: the same on each.
Tensor drawn_like(const Tensor& t);

/// The output, then the gradient of each input that is there.
std::vector<Tensor> both_passes(Forward, const Arguments& leaves, const Tensor& dout_BTHE);

/// One timed call: forward without autograd, or forward and backward.
std::function<void()> pass(Forward, const Arguments& leaves, bool backward);

}  // namespace motet
