#include "motet/kernels/rows.h"
#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

struct RotateArguments {
  const Tensor& x_BTHD;
  const Rotation& by;
};

// The a and b halves of the pairs of the first `dims` dimensions.
std::pair<Tensor, Tensor> pairs(const Tensor& x, int64_t dims, bool interleaved) {
  if (interleaved) return {x.slice(-1, 0, dims, 2), x.slice(-1, 1, dims, 2)};
  return {x.slice(-1, 0, dims / 2), x.slice(-1, dims / 2, dims)};
}

// (a, b) -> (a cos - b sin, b cos + a sin); backward is the rotation by the opposite angle.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, double sign) {
  const int64_t dims = 2 * cos.size(-1);
  const Tensor wide = x.to(cos.scalar_type());
  Tensor out = at::empty(wide.sizes(), wide.options());
  const auto [a, b] = pairs(wide, dims, interleaved);
  auto [out_a, out_b] = pairs(out, dims, interleaved);
  at::mul_out(out_a, a, cos).addcmul_(b, sin, -sign);
  at::mul_out(out_b, b, cos).addcmul_(a, sin, sign);
  if (dims < x.size(-1)) out.slice(-1, dims).copy_(wide.slice(-1, dims));
  return out.to(x.scalar_type());
}

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& cos,
                        const Tensor& sin, bool interleaved) {
    context->save_for_backward({cos, sin});
    context->saved_data["interleaved"] = interleaved;
    return rotated(x, cos, sin, interleaved, 1);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], context->saved_data["interleaved"].toBool(), -1), Tensor(),
            Tensor(), Tensor()};
  }
};

std::string why_not(const RotateArguments& a) {
  for (const Tensor* table : {&a.by.cos, &a.by.sin})
    if (table->scalar_type() != at::kFloat || !table->is_contiguous()) return "tables in float32 alone";
  return why_not_rows(a.x_BTHD);
}

Tensor run_rows(const RotateArguments& a) {
  const Tensor& x = a.x_BTHD;
  const int64_t T = x.size(1), H = x.size(2), D = x.size(3), pairs = a.by.cos.size(3);
  const bool one_table = a.by.cos.size(0) == 1;
  const Tensor y = at::empty(x.sizes(), x.options());
  const float *from = x.const_data_ptr<float>(), *cos = a.by.cos.const_data_ptr<float>(),
              *sin = a.by.sin.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  torch_threads().run_parts(x.size(0) * T, (1 << 15) / (H * D) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = (one_table ? row % T : row) * pairs;
      rotate_heads(from + row * H * D, H, D, {cos + at, sin + at, pairs, a.by.interleaved}, to + row * H * D);
    }
  });
  return y;
}

const auto& rotate_kernels() {
  static const Kernels<RotateArguments, Tensor, 3> table(
      "rotate", {{{"cuda",
                   [](const RotateArguments& a) {
                     return why_not_step(a.x_BTHD, [&] { return cuda_rotate_why_not(a.x_BTHD, a.by); });
                   },
                   [](const RotateArguments& a) { return cuda_rotate(a.x_BTHD, a.by, *step_library()); }},
                  {"rows", why_not, run_rows},
                  {"torch", [](const RotateArguments&) { return std::string(); },
                   [](const RotateArguments& a) -> Tensor {
                     return Rotate::apply(a.x_BTHD, a.by.cos, a.by.sin, a.by.interleaved);
                   }}}});
  return table;
}

}  // namespace

const KernelTable& rotate_table() { return rotate_kernels().names(); }

Tensor ops::rotate(const Tensor& x_BTHD, const Rotation& by, const char* kernel) {
  check_device("rotate", by.cos, "cos", x_BTHD);
  check_device("rotate", by.sin, "sin", x_BTHD);
  const at::IntArrayRef x = x_BTHD.sizes(), t = by.cos.sizes();
  TORCH_CHECK_VALUE(x.size() == 4 && t.size() == 4 && by.sin.sizes() == t && (t[0] == 1 || t[0] == x[0]) &&
                        t[1] == x[1] && t[2] == 1 && 2 * t[3] <= x[3],
                    "rotate: x has shape ", x, ", cos ", t, " and sin ", by.sin.sizes(),
                    ", want [B,T,H,D] and twice [1 or B,T,1,P] with 2 P <= D");
  return rotate_kernels()(x_BTHD, {x_BTHD, by}, kernel);
}

}  // namespace motet
