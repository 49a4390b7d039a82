#include "motet/models/recompute.h"

namespace motet {
namespace {

struct Kept : torch::CustomClassHolder {
  explicit Kept(std::function<Tensor(const Tensor&)> f) : run(std::move(f)) {}
  std::function<Tensor(const Tensor&)> run;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const c10::intrusive_ptr<Kept>& kept) {
    context->save_for_backward({x});
    context->saved_data["function"] = c10::IValue::make_capsule(kept);
    // As the backward pass will: without gradients layers would take other kernels, with other last bits.
    const at::AutoGradMode with_gradients(true);
    return kept->run(x.detach().requires_grad_()).detach();
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["function"].toCapsule());
    const at::AutoGradMode with_gradients(true);
    torch::autograd::backward({kept->run(x)}, {gradients[0]});
    return {x.grad(), Tensor()};
  }
};

}  // namespace

Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> function) {
  if (!at::GradMode::is_enabled()) return function(x);
  // A node without an input that wants a gradient would be none.
  const Tensor input = x.requires_grad() ? x : x.detach().requires_grad_();
  return Recomputed::apply(input, c10::make_intrusive<Kept>(std::move(function)));
}

}  // namespace motet
