#include "motet/bench/passes.h"

#include <ATen/Context.h>

#include "motet/attention/definition.h"
#include "motet/attention/eager.h"
#include "motet/attention/stack.h"

namespace motet {
namespace {

std::vector<Tensor> leaves(const Arguments& a) {
  std::vector<Tensor> all;
  for (const Tensor& t : a.input)
    if (t.defined()) all.push_back(t);
  return all;
}

enum class Backend { flash, cudnn };

// PyTorch chooses among the backends that its context allows: one, while this lives.
class OneBackend {
 public:
  explicit OneBackend(Backend backend) {
    context_.setSDPUseFlash(backend == Backend::flash);
    context_.setSDPUseCuDNN(backend == Backend::cudnn);
    context_.setSDPUseMemEfficient(false);
    context_.setSDPUseMath(false);
  }
  ~OneBackend() {
    context_.setSDPUseFlash(flash_);
    context_.setSDPUseCuDNN(cudnn_);
    context_.setSDPUseMemEfficient(efficient_);
    context_.setSDPUseMath(math_);
  }
  OneBackend(const OneBackend&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  bool flash_ = context_.userEnabledFlashSDP(), cudnn_ = context_.userEnabledCuDNNSDP(),
       efficient_ = context_.userEnabledMemEfficientSDP(), math_ = context_.userEnabledMathSDP();
};

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

Tensor run_flash(const Arguments& a) {
  const OneBackend flash(Backend::flash);
  return run_sdpa(a);
}

Tensor run_cudnn(const Arguments& a) {
  const OneBackend cudnn(Backend::cudnn);
  return run_sdpa(a);
}

Tensor run_eager(const Arguments& a) { return eager(checked_problem(a, "bench")); }

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
  if (!backward) {
    Arguments alone = a;  // nothing asks for a gradient: kernels without one may be chosen
    for (Tensor& t : alone.input)
      if (t.defined()) t = t.detach();
    return [=] {
      const at::NoGradGuard no_grad;
      forward(alone);
    };
  }
  const Tensor dout = drawn_like(forward(a).detach());
  return [=] { both_passes(forward, a, dout); };
}

}  // namespace motet
