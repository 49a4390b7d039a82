#include "motet/layers/linear.h"

#include "motet/ops/number_type.h"

namespace motet {

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias, at::Device device) {
  weight = register_parameter("weight", at::empty({out, in}, device));
  if (with_bias) bias = register_parameter("bias", at::empty({out}, device));
}

Tensor LinearImpl::forward(const Tensor& x) { return ops::linear(x, operands()); }

Tensor LinearImpl::rows(const Tensor& ids) const { return ops::embedding(operands().weight_NK, ids); }

std::vector<Tensor> linear_together(std::initializer_list<const LinearImpl*> layers, const Tensor& x) {
  c10::SmallVector<LinearLayer, 4> operands;
  for (const LinearImpl* layer : layers) operands.push_back(layer->operands());
  return ops::linear_together(x, std::span(operands.data(), operands.size()));
}

int64_t LinearImpl::kept_bytes() const {
  const auto bytes = [](const Tensor& t) { return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; };
  return bytes(kept_.values_NK) + bytes(kept_.scale_N);
}

bool LinearImpl::is_kept_in(WeightType type) const {
  return kept_.kept && kept_.values_NK.scalar_type() == dtype_of(type);
}

int64_t LinearImpl::prepared_bytes(WeightType type) const {
  const Tensor w = operands().weight_NK.values_NK;
  return is_kept_in(type) || !w.is_cpu() ? 0 : arena_bytes(type, w.size(0), w.size(1));
}

void LinearImpl::prepare(Prepared, WeightType type, WeightArena& arena) {
  if (is_kept_in(type)) return;  // 8 bits of what 8 bits stand for can be others
  drop_prepared();
  const Matrix made = kept_in(type, weight, arena);
  if (made.kept) return keep(made);
  at::NoGradGuard no_grad;
  weight.set_data(made.values_NK);
}

void LinearImpl::keep(Matrix kept) {
  at::NoGradGuard no_grad;
  weight.set_data(at::empty({0, kept.values_NK.size(1)}, weight.options()));
  kept_ = on_device(kept, weight.device());
}

void LinearImpl::drop_prepared() {
  if (!kept_.kept) return;
  at::NoGradGuard no_grad;
  weight.set_data(widened(kept_));
  kept_ = {};
}

}  // namespace motet
