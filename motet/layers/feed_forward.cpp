#include "motet/layers/feed_forward.h"

#include "motet/kernels/rows.h"

namespace motet {

namespace {

constexpr int64_t kFewNumbers = 1024;  // for which torch's call takes longer than the numbers

}  // namespace

Tensor activated(const Tensor& x, Activation activation) {
  if (activation != Activation::silu && x.numel() <= kFewNumbers && for_kernels(x)) {
    const Tensor y = at::empty_like(x);
    gelu(x.const_data_ptr<float>(), x.numel(), activation == Activation::gelu_tanh, y.mutable_data_ptr<float>());
    return y;
  }
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
  }
  TORCH_INTERNAL_ASSERT(false, "unknown activation");
}

FeedForwardImpl::FeedForwardImpl(int64_t width, int64_t inner, Activation activation, bool gated, at::Device device)
    : activation_(activation) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, Linear(in, out, !gated, device));
  };
  if (gated) gate_proj = linear("gate_proj", width, inner);
  up_proj = linear("up_proj", width, inner);
  down_proj = linear("down_proj", inner, width);
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  if (!gate_proj) return down_proj(activated(up_proj(x), activation_));
  const std::vector<Tensor> inner = linear_together({gate_proj.get(), up_proj.get()}, x);
  if (activation_ != Activation::silu || !for_kernels(inner[0]))
    return down_proj(activated(inner[0], activation_) * inner[1]);
  float* const gate = inner[0].mutable_data_ptr<float>();
  const float* const up = inner[1].const_data_ptr<float>();
  over_parts(inner[0].numel(), 1 << 15,
             [&](int64_t begin, int64_t end) { silu_times(gate + begin, up + begin, end - begin, gate + begin); });
  return down_proj(inner[0]);
}

}  // namespace motet
