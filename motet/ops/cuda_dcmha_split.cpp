#include "motet/ops/cuda.h"
#include "motet/ops/cuda_call.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

constexpr const char* kName = "dcmha_maps";

/// What is not a tensor of a call.
struct Sizes {
  int64_t batch, count, branches, rank, heads;
  double eps;
  const cuda::StepKernels* kernels;
};

cuda::DcmhaSplit plain(const Sizes& n, const Tensor& maps, const Tensor& gates_SX) {
  cuda::DcmhaSplit s{.rows = n.batch * n.count,
                     .branches = n.branches,
                     .rank = n.rank,
                     .heads = n.heads,
                     .eps = static_cast<float>(n.eps)};
  if (maps.defined()) s.maps = maps.const_data_ptr(), s.maps_type = number_type(maps);
  if (gates_SX.defined()) s.gates = plain_rows(gates_SX);
  return s;
}

// Tensors of the parts, branch by branch: down, up, gate, those that there are.
class Parts {
 public:
  Parts(const Sizes& n, bool maps, bool gates) : n_(n), maps_(maps), gates_(gates) {}
  size_t each() const { return (maps_ ? 2 : 0) + (gates_ ? 1 : 0); }
  std::vector<Tensor> made(const Tensor& maps, const Tensor& gates) const {
    std::vector<Tensor> all;
    for (int64_t i = 0; i < n_.branches; ++i) {
      for (int part = 0; maps_ && part < 2; ++part)
        all.push_back(at::empty({n_.batch, n_.count, n_.rank, n_.heads}, maps.options()));
      if (gates_) all.push_back(at::empty({n_.batch, n_.count, n_.heads}, gates.options()));
    }
    return all;
  }
  cuda::DcmhaParts plain(const std::vector<Tensor>& all) const {
    const auto place = [](const Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; };
    cuda::DcmhaParts parts;
    for (size_t i = 0; i < all.size() / each(); ++i) {
      const Tensor* const of = &all[i * each()];
      if (maps_) parts.down[i] = place(of[0]), parts.up[i] = place(of[1]);
      if (gates_) parts.gate[i] = place(of[each() - 1]);
    }
    return parts;
  }

 private:
  const Sizes& n_;
  bool maps_, gates_;
};

class CudaDcmhaSplit : public torch::autograd::Function<CudaDcmhaSplit> {
 public:
  static std::vector<Tensor> forward(torch::autograd::AutogradContext* context, const std::optional<Tensor>& maps,
                                     const std::optional<Tensor>& gates, const Sizes& n) {
    const Tensor maps_QSX = maps ? maps->contiguous() : Tensor(), gates_SX = gates ? as_rows(*gates) : Tensor();
    const CudaCall call(maps ? maps_QSX : gates_SX, *n.kernels);
    const Parts parts(n, maps.has_value(), gates.has_value());
    const std::vector<Tensor> made = parts.made(maps_QSX, gates_SX);
    CudaCall::check(kName, n.kernels->dcmha_split(plain(n, maps_QSX, gates_SX), parts.plain(made), call.run()));
    context->save_for_backward({maps.value_or(Tensor()), gates.value_or(Tensor())});
    context->saved_data["sizes"] = std::vector<int64_t>{n.batch, n.count, n.branches, n.rank, n.heads};
    context->saved_data["eps"] = n.eps;
    context->set_materialize_grads(false);
    keep_kernels(context, *n.kernels);
    return made;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const cuda::StepKernels& kernels = kept_kernels(context, kName);
    const auto saved = context->get_saved_variables();
    const bool maps = saved[0].defined(), gates = saved[1].defined();
    const Tensor maps_QSX = maps ? saved[0].contiguous() : Tensor(), gates_SX = gates ? as_rows(saved[1]) : Tensor();
    const auto sizes = context->saved_data["sizes"].toIntVector();
    const Sizes n{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], context->saved_data["eps"].toDouble(), &kernels};
    const CudaCall call(maps ? maps_QSX : gates_SX, kernels);
    std::vector<Tensor> given = gradients;
    for (Tensor& t : given)
      if (t.defined()) t = t.contiguous();
    std::vector<Tensor> made(3);
    cuda::DcmhaGradients to;
    if (maps && context->needs_input_grad(0))
      made[0] = at::empty(maps_QSX.sizes(), maps_QSX.options()), to.maps = made[0].mutable_data_ptr();
    if (gates && context->needs_input_grad(maps ? 1 : 0))
      made[1] = at::empty({n.batch, n.count, n.branches * n.heads}, gates_SX.options()),
      to.gates = made[1].mutable_data_ptr();
    CudaCall::check(kName, kernels.dcmha_split_backward(plain(n, maps_QSX, gates_SX),
                                                        Parts(n, maps, gates).plain(given), to, call.run()));
    return made;
  }
};

std::optional<Tensor> given(const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

}  // namespace

std::string cuda_dcmha_maps_why_not(const Tensor& x, const DcmhaGenerator& by) {
  if (std::string reason = why_not_numbers(x, "x"); !reason.empty()) return reason;
  if (by.groups != 1) return "more than one group of heads";
  if (by.branches > cuda::kMaxBranches) return "more than two branches";
  if (x.numel() / x.size(2) * by.branches * (2 * by.rank + 1) * by.heads > INT32_MAX)
    return "more maps than 31 bits count";
  return "";
}

std::vector<DcmhaMaps> cuda_dcmha_split(const DcmhaProducts& from, const DcmhaGenerator& by, double eps,
                                        const cuda::StepKernels& kernels) {
  const Sizes n{from.batch, from.count, by.branches, by.rank, by.heads, eps, &kernels};
  const std::vector<Tensor> made = CudaDcmhaSplit::apply(given(from.maps_QSX), given(from.gates_BTX), n);
  const size_t each = made.size() / static_cast<size_t>(by.branches);
  std::vector<DcmhaMaps> all(static_cast<size_t>(by.branches));
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor* const of = &made[i * each];
    if (from.maps_QSX.defined()) all[i].down_BTRN = of[0], all[i].up_BTRN = of[1];
    if (from.gates_BTX.defined()) all[i].gate_BTN = of[each - 1];
  }
  return all;
}

}  // namespace motet
