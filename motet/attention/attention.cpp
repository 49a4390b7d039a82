// The C++ interface: arguments are flattened and go through the torch dispatcher, so that C++ and torch callers end in
// the same kernel table.
#include "motet/attention/attention.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <array>

#include "motet/attention/definition.h"
#include "motet/attention/kernels.h"
#include "motet/attention/stack.h"

namespace motet {
namespace {

using torch::jit::Stack;

Problem checked_problem(const Arguments& a, const Heads& heads, const char* function) {
  Problem p = checked_problem(a, function);
  check_heads(heads, p, function);
  return p;
}

Arguments checked(const Queries& queries, const Keys& keys, const Attention& attention, const char* function,
                  const char* kernel = nullptr) {
  Arguments a = flatten(queries, keys, attention);
  if (kernel) a.kernel = kernel;
  const Heads& heads = attention.heads;
  if (heads.scores || heads.softmax || heads.outputs) checked_problem(a, heads, function);
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
  std::array<const Tensor*, 10> of{};
  size_t tensors = 0, next = 0;
  for_each_scale(scales, [&](const Tensor& scale) { of[tensors++] = &scale; });
  for_each_tensor(wide, [&](Tensor& x) {
    if (const Tensor& scale = *of[next++]; scale.defined()) x = x.to(at::kFloat).mul_(scale.unsqueeze(-1));
  });
  return wide;
}

namespace {

void check_scale(int input, const Tensor& x, const Tensor& scale) {
  TORCH_CHECK_VALUE(x.dim() > 0 && x.scalar_type() == at::kChar, "composed_attention: ", input_name(input),
                    " has dtype ", x.scalar_type(), " and shape ", x.sizes(), ", want int8 beside its scales");
  const at::IntArrayRef rows = x.sizes().slice(0, x.dim() - 1);
  TORCH_CHECK_VALUE(
      scale.defined() && scale.scalar_type() == at::kFloat && scale.sizes() == rows && scale.device() == x.device(),
      "composed_attention: the scales of ", input_name(input), " want float32 of shape ", rows, " on ", x.device());
}

}  // namespace

Attended composed_attention(const Queries& queries, const Keys& keys, const KeyScales& scales,
                            const Attention& attention) {
  const char* const function = "composed_attention";
  TORCH_CHECK_VALUE(queries.q_BTHD.defined() && queries.q_BTHD.scalar_type() == at::kFloat &&
                        !(at::GradMode::is_enabled() && queries.q_BTHD.requires_grad()),
                    function, ": keys in 8 bits want q in float32, and no gradient");
  Arguments a = flatten(queries, keys, attention);
  const auto given = a.input, scale = flatten({}, {scales.k_BSG, scales.v_BSG, scales.pre, scales.post}, {}).input;
  // Everything else is checked on float32 tensors of their shapes, which hold one number.
  const Tensor number = at::zeros({1}, queries.q_BTHD.options().requires_grad(false));
  for (int i = 0; i < kNumInputs; ++i) {
    TORCH_CHECK_VALUE(given[i].defined() || !scale[i].defined(), function, ": scales of ", input_name(i),
                      " stand without it, want both");
    const bool in_8_bits = given[i].defined() && (scale[i].defined() || i == kK || i == kV ||
                                                  (i >= kPre && given[i].scalar_type() == at::kChar));
    if (in_8_bits) check_scale(i, given[i], scale[i]), a.input[i] = number.expand(given[i].sizes());
  }
  Problem p = checked_problem(a, attention.heads, function);
  for (int i = 0; i < kNumInputs; ++i)
    if (scale[i].defined()) p.input(i) = given[i];
  p.scales = scale;
  const Kernel& kernel = choose(p, Form::attend, {});
  if (kernel.reads_8_bits) return kernel.forward(p);
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
  Arguments a = flatten(queries, keys, attention);
  // Where autocast makes the mixes 16 bits wide and a norm makes q float32, composed_attention widens them too.
  for (int i = kBias; i < kNumInputs; ++i)
    if (Tensor& t = a.input[i];
        t.defined() && a.input[kQ].scalar_type() == at::kFloat && at::isReducedFloatingType(t.scalar_type()))
      t = t.to(at::kFloat);
  return definition(checked_problem(a, attention.heads, "attention_maps"), change);
}

Choice explain(const Queries& queries, const Keys& keys, const Attention& attention, const char* kernel) {
  const Arguments a = checked(queries, keys, attention, "explain", kernel);
  return explain(checked_problem(a, "explain"), a.kernel);
}

}  // namespace motet
