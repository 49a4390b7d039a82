// The C++ interface: arguments are flattened and go through the torch dispatcher, so that C++ and torch callers end in
// the same kernel table.
#include "motet/attention/attention.h"

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

}  // namespace

Attended composed_attention(const Queries& queries, const Keys& keys, const Attention& attention, const char* kernel) {
  Stack stack;
  push(stack, checked(queries, keys, attention, "composed_attention", kernel));
  call("motet::composed_attention", stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
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
