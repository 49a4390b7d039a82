#include "motet/kernels/linear.h"
#include "motet/kernels/rows.h"
#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

constexpr int64_t kFewNumbers = 1024;  // for which torch's call takes longer than the numbers

struct Gated {
  const Tensor &gate, &up;
};

std::string why_not_gated(const Gated& a) {
  if (a.up.scalar_type() != at::kFloat || !a.up.is_contiguous()) return "up in float32 without gaps alone";
  return why_not_floats(a.gate);
}

// f(begin, end) on blocks that are the same on any number of threads: a vector's last numbers round otherwise.
template <class F>
void in_blocks(int64_t n, const F& f) {
  constexpr int64_t kBlock = 1 << 15;
  torch_threads().run_parts((n + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i * kBlock, std::min((i + 1) * kBlock, n));
  });
}

Tensor gated_rows(const Tensor& gate_tensor, const Tensor& up_tensor) {
  const Tensor y = at::empty(gate_tensor.sizes(), gate_tensor.options());
  const float *gate = gate_tensor.const_data_ptr<float>(), *up = up_tensor.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  in_blocks(y.numel(),
            [&](int64_t begin, int64_t end) { silu_times(gate + begin, up + begin, end - begin, to + begin); });
  return y;
}

class GatedRows : public torch::autograd::Function<GatedRows> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return gated_rows(gate, up);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "silu_times: kernel rows has no second derivative, want kernel torch");
    const auto saved = context->get_saved_variables();
    const Tensor dy_tensor = gradients[0].contiguous(), dgate = at::empty_like(saved[0]),
                 dup = at::empty_like(saved[1]);
    const float *gate = saved[0].const_data_ptr<float>(), *up = saved[1].const_data_ptr<float>(),
                *dy = dy_tensor.const_data_ptr<float>();
    const SiluTimesGradients to{dgate.mutable_data_ptr<float>(), dup.mutable_data_ptr<float>()};
    in_blocks(dy_tensor.numel(), [&](int64_t begin, int64_t end) {
      silu_times_backward(gate + begin, up + begin, dy + begin, end - begin, {to.gate + begin, to.up + begin});
    });
    return {dgate, dup};
  }
};

const auto& gated_table() {
  static const Kernels<Gated, Tensor, 3> table(
      "silu_times",
      {{{"cuda",
         [](const Gated& a) { return why_not_step(a.gate, [&] { return cuda_silu_times_why_not(a.gate, a.up); }); },
         [](const Gated& a) { return cuda_silu_times(a.gate, a.up, *step_library()); }},
        {"rows", why_not_gated,
         [](const Gated& a) -> Tensor {
           return at::GradMode::is_enabled() ? GatedRows::apply(a.gate, a.up) : gated_rows(a.gate, a.up);
         }},
        {"torch", [](const Gated&) { return std::string(); },
         [](const Gated& a) -> Tensor { return at::silu(a.gate) * a.up; }}}});
  return table;
}

struct One {
  const Tensor& x;
  bool by_tanh;
};

std::string why_not_few(const One& a) {
  return a.x.numel() > kMaxLinearRows * a.x.size(-1) ? "more than 16 rows" : why_not_rows(a.x);
}

Tensor gelu_torch(const Tensor& x, bool by_tanh) { return at::gelu(x, by_tanh ? "tanh" : "none"); }

// Rows of few numbers without torch; others one by one, so that a row's bits do not depend on those beside it, for
// torch rounds the numbers that fill no vector otherwise.
Tensor gelu_rows(const One& a) {
  const int64_t width = a.x.size(-1), rows = a.x.numel() / width;
  if (rows == 1 && width > kFewNumbers) return gelu_torch(a.x, a.by_tanh);
  const Tensor y = at::empty(a.x.sizes(), a.x.options());
  if (width <= kFewNumbers) {
    gelu(a.x.const_data_ptr<float>(), a.x.numel(), a.by_tanh, y.mutable_data_ptr<float>());
    return y;
  }
  const Tensor x_MN = a.x.view({rows, width}), y_MN = y.view({rows, width});
  for (int64_t m = 0; m < rows; ++m) y_MN[m].copy_(gelu_torch(x_MN[m], a.by_tanh));
  return y;
}

const auto& gelu_rows_table() {
  static const Kernels<One, Tensor, 2> table("gelu",
                                             {{{"rows", why_not_few, gelu_rows},
                                               {"torch", [](const One&) { return std::string(); },
                                                [](const One& a) -> Tensor { return gelu_torch(a.x, a.by_tanh); }}}});
  return table;
}

}  // namespace

const KernelTable& silu_times_table() { return gated_table().names(); }
const KernelTable& gelu_table() { return gelu_rows_table().names(); }

Tensor ops::silu_times(const Tensor& gate, const Tensor& up, const char* kernel) {
  check_device("silu_times", up, "up", gate, "gate");
  TORCH_CHECK_VALUE(gate.sizes() == up.sizes(), "silu_times: gate has shape ", gate.sizes(), " and up ", up.sizes(),
                    ", want the same");
  return gated_table()(gate, {gate, up}, kernel);
}

Tensor ops::gelu(const Tensor& x, bool by_tanh, const char* kernel) {
  return gelu_rows_table()(x, {x, by_tanh}, kernel);
}

}  // namespace motet
