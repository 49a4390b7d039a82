#include "motet/kernels/rows.h"
#include "motet/ops/checks.h"
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
  return why_not_rows(a.gate);
}

Tensor gated_rows(const Gated& a) {
  const Tensor y = at::empty(a.gate.sizes(), a.gate.options());
  const float *gate = a.gate.const_data_ptr<float>(), *up = a.up.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  torch_threads().run_parts(y.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
    silu_times(gate + begin, up + begin, end - begin, to + begin);
  });
  return y;
}

const auto& gated_table() {
  static const Kernels<Gated, Tensor, 2> table("silu_times",
                                               {{{"rows", why_not_gated, gated_rows},
                                                 {"torch", [](const Gated&) { return std::string(); },
                                                  [](const Gated& a) -> Tensor { return at::silu(a.gate) * a.up; }}}});
  return table;
}

struct One {
  const Tensor& x;
  bool by_tanh;
};

std::string why_not_few(const One& a) {
  return a.x.numel() > kFewNumbers ? "more than 1024 numbers" : why_not_rows(a.x);
}

Tensor gelu_rows(const One& a) {
  const Tensor y = at::empty(a.x.sizes(), a.x.options());
  gelu(a.x.const_data_ptr<float>(), a.x.numel(), a.by_tanh, y.mutable_data_ptr<float>());
  return y;
}

const auto& gelu_rows_table() {
  static const Kernels<One, Tensor, 2> table(
      "gelu", {{{"rows", why_not_few, gelu_rows},
                {"torch", [](const One&) { return std::string(); },
                 [](const One& a) -> Tensor { return at::gelu(a.x, a.by_tanh ? "tanh" : "none"); }}}});
  return table;
}

}  // namespace

const KernelTable& silu_times_table() { return gated_table().names(); }
const KernelTable& gelu_table() { return gelu_rows_table().names(); }

Tensor ops::silu_times(const Tensor& gate, const Tensor& up, const char* kernel) {
  check_device("silu_times", up, "up", gate, "gate");
  TORCH_CHECK_VALUE(gate.sizes() == up.sizes(), "silu_times: gate has shape ", gate.sizes(), " and up ", up.sizes(),
                    ", want the same");
  return gated_table()({gate, up}, kernel);
}

Tensor ops::gelu(const Tensor& x, bool by_tanh, const char* kernel) { return gelu_rows_table()({x, by_tanh}, kernel); }

}  // namespace motet
