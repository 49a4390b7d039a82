#include "motet/bench/passes.h"

#include "motet/attention/definition.h"
#include "motet/attention/stack.h"

namespace motet {
namespace {

std::vector<Tensor> leaves(const Arguments& a) {
  std::vector<Tensor> all;
  for (const Tensor& t : a.input)
    if (t.defined()) all.push_back(t);
  return all;
}

}  // namespace

Tensor run_operator(const Arguments& a) {
  torch::jit::Stack stack;
  push(stack, a);
  c10::Dispatcher::singleton().findSchemaOrThrow("motet::composed_attention", "").callBoxed(&stack);
  return stack[0].toTensor();
}

Tensor run_sdpa(const Arguments& a) {
  const auto heads_first = [&](int i) { return a.input[i].transpose(1, 2); };
  return at::scaled_dot_product_attention(heads_first(kQ), heads_first(kK), heads_first(kV), {}, 0.0,
                                          a.input[kQ].size(1) > 1)
      .transpose(1, 2);
}

Tensor run_definition(const Arguments& a) { return definition(checked_problem(a, "bench")).out_BTHE; }

Arguments as_leaves(Arguments a, at::ScalarType type, at::Device device) {
  for (Tensor& t : a.input)
    if (t.defined()) t = t.detach().to(device, type).requires_grad_();
  return a;
}

Tensor drawn_like(const Tensor& t) { return at::randn(t.sizes(), t.options().device(at::kCPU)).to(t.device()); }

// The output, then the gradient of each input.
std::vector<Tensor> both_passes(Forward forward, const Arguments& a, const Tensor& dout_BTHE) {
  const Tensor out = forward(a);
  std::vector<Tensor> all = torch::autograd::grad({out}, leaves(a), {dout_BTHE.to(out.scalar_type())});
  all.insert(all.begin(), out.detach());
  return all;
}

std::function<void()> pass(Forward forward, const Arguments& a, bool backward) {
  if (!backward)
    return [=] {
      const at::NoGradGuard no_grad;
      forward(a);
    };
  const Tensor dout = drawn_like(forward(a).detach());
  return [=] { both_passes(forward, a, dout); };
}

}  // namespace motet
