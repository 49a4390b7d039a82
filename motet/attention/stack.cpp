#include "motet/attention/stack.h"

namespace motet {
namespace {

using torch::jit::Stack;

Tensor tensor_of(const c10::IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }
c10::IValue optional(const Tensor& t) { return t.defined() ? c10::IValue(t) : c10::IValue(); }
c10::IValue optional(const std::vector<int64_t>& list) { return list.empty() ? c10::IValue() : c10::IValue(list); }
std::vector<int64_t> list_of(const c10::IValue& value) {
  return value.isNone() ? std::vector<int64_t>() : value.toIntVector();
}

// The arguments lie on the stack in the order of the schema: read them front to back, then drop them.
class Reader {
 public:
  Reader(Stack& stack, size_t count) : stack_(stack), begin_(stack.size() - count), next_(begin_) {}
  c10::IValue next() { return stack_[next_++]; }
  ~Reader() { stack_.resize(begin_); }

 private:
  Stack& stack_;
  size_t begin_, next_;
};

constexpr size_t kNumArguments = kNumInputs + kNumTables + 9;

}  // namespace

std::string schema_arguments() {
  std::string s = "Tensor q, Tensor k, Tensor v, *";
  for (int i = kBias; i < kNumInputs; ++i) s += ", Tensor? " + input_name(i) + "=None";
  for (int i = 0; i < kNumTables; ++i) s += ", Tensor? " + std::string(table_name(i)) + "=None";
  return s +
         ", bool pre_identity=False, bool post_identity=False, bool causal=False, int window=0, int[]? key_of=None, "
         "int[]? value_of=None, float? scale=None, str? precision=None, "
         "str? kernel_name=None";
}

std::string schema_mix_arguments() {
  std::string s = "*, bool identity=False";
  for (const MixPart& part : kMixParts) s += ", Tensor? " + std::string(part.name) + "=None";
  return s;
}

void push(Stack& stack, const Arguments& a) {
  for (int i = 0; i < kNumInputs; ++i) stack.push_back(optional(a.input[i]));
  for (const Tensor& t : a.table) stack.push_back(optional(t));
  for (bool flag : {a.pre_identity, a.post_identity, a.causal}) stack.emplace_back(flag);
  stack.emplace_back(a.window);
  stack.push_back(optional(a.key_of));
  stack.push_back(optional(a.value_of));
  stack.push_back(a.scale ? c10::IValue(*a.scale) : c10::IValue());
  stack.push_back(a.precision ? c10::IValue(*a.precision) : c10::IValue());
  stack.push_back(a.kernel ? c10::IValue(*a.kernel) : c10::IValue());
}

Arguments pop_arguments(Stack& stack) {
  Reader in(stack, kNumArguments);
  Arguments a;
  for (Tensor& t : a.input) t = tensor_of(in.next());
  for (Tensor& t : a.table) t = tensor_of(in.next());
  a.pre_identity = in.next().toBool();
  a.post_identity = in.next().toBool();
  a.causal = in.next().toBool();
  a.window = in.next().toInt();
  a.key_of = list_of(in.next());
  a.value_of = list_of(in.next());
  if (const c10::IValue scale = in.next(); !scale.isNone()) a.scale = scale.toDouble();
  if (const c10::IValue precision = in.next(); !precision.isNone()) a.precision = precision.toStringRef();
  if (const c10::IValue kernel = in.next(); !kernel.isNone()) a.kernel = kernel.toStringRef();
  return a;
}

void push(Stack& stack, const HeadMix& mix) {
  stack.emplace_back(mix.identity);
  for (const Tensor& t : mix.part) stack.push_back(optional(t));
}

HeadMix pop_mix(Stack& stack) {
  Reader in(stack, 1 + kNumMixParts);
  HeadMix mix;
  mix.identity = in.next().toBool();
  for (Tensor& t : mix.part) t = tensor_of(in.next());
  return mix;
}

}  // namespace motet
