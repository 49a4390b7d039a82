// The C++ interface: arguments are flattened and go through the torch dispatcher, so that C++ and torch callers end in
// the same kernel table.
#include "motet/attention/attention.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "motet/attention/definition.h"
#include "motet/attention/kernels.h"
#include "motet/attention/stack.h"

namespace motet {
namespace {

using torch::jit::Stack;

Arguments checked(const Queries& queries, const Keys& keys, const Attention& attention, const char* function,
                  const char* kernel = nullptr) {
  Arguments a = flatten(queries, keys, attention);
  if (kernel) a.kernel = kernel;
  const Heads& heads = attention.heads;
  if (heads.scores || heads.softmax || heads.outputs) check_heads(heads, checked_problem(a, function), function);
  return a;
}

void call(const char* name, Stack& stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
}

// Whether torch's dispatcher would do nothing but call us: no gradient, autocast, profiler or mode of Python is there.
// Decoding then goes without it, which boxes and unboxes forty arguments for every sequence and layer.
bool dispatcher_does_nothing(const Tensor& q) {
  return c10::InferenceMode::is_enabled() && q.defined() && q.is_cpu() &&
         !at::autocast::is_autocast_enabled(at::kCPU) && !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         !at::hasCallbacks();
}

}  // namespace

Attended composed_attention(const Queries& queries, const Keys& keys, const Attention& attention, const char* kernel) {
  const Arguments arguments = checked(queries, keys, attention, "composed_attention", kernel);
  if (dispatcher_does_nothing(queries.q_BTHD)) {
    const Problem p = checked_problem(arguments, "composed_attention");
    const Attended done = choose(p, Form::attend, arguments.kernel).forward(p);
    return {done.out_BTHE.contiguous(), done.lse_BHT.contiguous()};
  }
  Stack stack;
  push(stack, arguments);
  call("motet::composed_attention", stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

Keys widened_keys(const Keys& keys, const KeyScales& scales) {
  Keys wide = keys;
  wide.k_BSGD = keys.k_BSGD.to(at::kFloat).mul_(scales.k_BSG.unsqueeze(-1));
  wide.v_BSGE = keys.v_BSGE.to(at::kFloat).mul_(scales.v_BSG.unsqueeze(-1));
  return wide;
}

namespace {

void check_scales(const char* name, const Tensor& x, const Tensor& scale) {
  TORCH_CHECK_VALUE(x.dim() == 4 && x.scalar_type() == at::kChar, "composed_attention: ", name, " has dtype ",
                    x.scalar_type(), " and shape ", x.sizes(), ", want int8 of 4 dimensions beside its scales");
  TORCH_CHECK_VALUE(scale.defined() && scale.scalar_type() == at::kFloat && scale.sizes() == x.sizes().slice(0, 3) &&
                        scale.device() == x.device(),
                    "composed_attention: the scales of ", name, " want float32 of shape ", x.sizes().slice(0, 3),
                    " on ", x.device());
}

}  // namespace

Attended composed_attention(const Queries& queries, const Keys& keys, const KeyScales& scales,
                            const Attention& attention) {
  check_scales("k", keys.k_BSGD, scales.k_BSG);
  check_scales("v", keys.v_BSGE, scales.v_BSG);
  TORCH_CHECK_VALUE(queries.q_BTHD.defined() && queries.q_BTHD.scalar_type() == at::kFloat &&
                        !(at::GradMode::is_enabled() && queries.q_BTHD.requires_grad()),
                    "composed_attention: keys in 8 bits want q in float32, and no gradient");
  // Everything else is checked on float32 tensors of their shapes, which hold one number.
  Keys shapes = keys;
  const Tensor number = at::zeros({1}, queries.q_BTHD.options().requires_grad(false));
  shapes.k_BSGD = number.expand(keys.k_BSGD.sizes()), shapes.v_BSGE = number.expand(keys.v_BSGE.sizes());
  Problem p = checked_problem(checked(queries, shapes, attention, "composed_attention"), "composed_attention");
  p.k_BSGD = keys.k_BSGD, p.v_BSGE = keys.v_BSGE, p.k_scale_BSG = scales.k_BSG, p.v_scale_BSG = scales.v_BSG;
  const Kernel& kernel = choose(p, Form::attend, {});
  for (const Kernel* reads : {&kFused, &kFusedAmx, &kCuda})
    if (kernel.name == reads->name) return kernel.forward(p);
  return composed_attention(queries, widened_keys(keys, scales), attention);
}

Tensor attention_lse(const Queries& queries, const Keys& keys, const Attention& attention, const char* kernel) {
  Stack stack;
  push(stack, checked(queries, keys, attention, "attention_lse", kernel));
  call("motet::attention_lse", stack);
  return stack[0].toTensor();
}

Tensor attention_given_lse(const Queries& queries, const Keys& keys, const Attention& attention, const Tensor& lse_BHT,
                           const char* kernel) {
  Stack stack;
  stack.emplace_back(lse_BHT);
  push(stack, checked(queries, keys, attention, "attention_given_lse", kernel));
  call("motet::attention_given_lse", stack);
  return stack[0].toTensor();
}

Tensor apply_head_mix(const Tensor& scores_BHTS, const StaticMix& fixed, const QueryMix& query, const KeyMix& key) {
  Stack stack;
  stack.emplace_back(scores_BHTS);
  push(stack, head_mix(fixed, query, key));
  call("motet::apply_head_mix", stack);
  return stack[0].toTensor();
}

AttentionMaps attention_maps(const Queries& queries, const Keys& keys, const Attention& attention) {
  return attention_maps(queries, keys, attention, {});
}

AttentionMaps attention_maps(const Queries& queries, const Keys& keys, const Attention& attention,
                             const ChangeLogits& change) {
  return definition(checked_problem(checked(queries, keys, attention, "attention_maps"), "attention_maps"), change);
}

Choice explain(const Queries& queries, const Keys& keys, const Attention& attention, const char* kernel) {
  const Arguments a = checked(queries, keys, attention, "explain", kernel);
  return explain(checked_problem(a, "explain"), a.kernel);
}

}  // namespace motet
