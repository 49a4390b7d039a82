// Registration with torch: schemas, CPU and CUDA kernels (one body), Meta, Autograd and Autocast. All kernels are
// boxed, so that the list of arguments is written once, in the table of parts.
#include <ATen/FuncTorchTLS.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <algorithm>

#include "motet/attention/definition.h"
#include "motet/attention/kernels.h"
#include "motet/attention/stack.h"

namespace motet {
namespace {

using torch::jit::Stack;
using Boxed = void (*)(const c10::OperatorHandle&, Stack*);

// ---- CPU and CUDA --------------------------------------------------------------------------------------------------

void run_attention(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  const Problem p = checked_problem(a, "composed_attention");
  const c10::OptionalDeviceGuard guard(p.q_BTHD.device());
  // Below autograd no tensor says whether this call is recorded, but one that may be has an input that asks for it.
  const bool trains = !c10::InferenceMode::is_enabled() &&
                      std::ranges::any_of(a.input, [](const Tensor& t) { return t.defined() && t.requires_grad(); });
  Attended done = choose(p, trains ? Form::train : Form::attend, a.kernel).forward(p);
  torch::jit::push(*stack, done.out_BTHE.contiguous(), done.lse_BHT.contiguous());
}

Wanted checked_wanted(const c10::List<bool>& given, const Arguments& a) {
  TORCH_CHECK_VALUE(given.size() == kNumInputs, "composed_attention_backward: wanted has ", given.size(),
                    " entries, want one for each of the ", kNumInputs, " inputs");
  Wanted wanted;
  for (int i = 0; i < kNumInputs; ++i) {
    wanted[i] = given[i];
    TORCH_CHECK_VALUE(!wanted[i] || a.input[i].defined(), "composed_attention_backward: the gradient of ",
                      input_name(i), " is wanted, which is not given");
  }
  return wanted;
}

void check_result(const Tensor& t, const char* function, const char* name, std::vector<int64_t> shape,
                  at::ScalarType type, const Tensor& q) {
  TORCH_CHECK_VALUE(t.sizes() == shape, function, ": ", name, " has shape ", t.sizes(), ", want ",
                    at::IntArrayRef(shape));
  TORCH_CHECK_VALUE(t.scalar_type() == type, function, ": ", name, " has dtype ", t.scalar_type(), ", want ", type);
  TORCH_CHECK_VALUE(t.device() == q.device(), function, ": ", name, " is on ", t.device(), ", want q's device ",
                    q.device());
}

void run_backward(const c10::OperatorHandle&, Stack* stack) {
  constexpr const char* kName = "composed_attention_backward";
  Backward b;
  const c10::List<bool> wanted = torch::jit::pop(*stack).toBoolList();
  const Arguments a = pop_arguments(*stack);
  torch::jit::pop(*stack, b.dout_BTHE, b.out_BTHE, b.lse_BHT);
  const Problem p = checked_problem(a, kName);
  const c10::OptionalDeviceGuard guard(p.q_BTHD.device());
  b.wanted = checked_wanted(wanted, a);
  const std::vector<int64_t> shape{p.B, p.T, p.output_heads, p.E};
  check_result(b.dout_BTHE, kName, "dout", shape, p.q_BTHD.scalar_type(), p.q_BTHD);
  check_result(b.out_BTHE, kName, "out", shape, p.q_BTHD.scalar_type(), p.q_BTHD);
  check_result(b.lse_BHT, kName, "lse", {p.B, p.softmax_heads, p.T}, p.accumulate(), p.q_BTHD);
  const Gradients g = choose(p, Form::train, a.kernel).backward(p, b);
  std::vector<Tensor> asked;
  for (int i = 0; i < kNumInputs; ++i)
    if (b.wanted[i]) asked.push_back(g[i].contiguous());
  torch::jit::push(*stack, asked);
}

void run_lse(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  const Problem p = checked_problem(a, "attention_lse");
  const c10::OptionalDeviceGuard guard(p.q_BTHD.device());
  torch::jit::push(*stack, choose(p, Form::two_phase, a.kernel).lse(p));
}

void run_given_lse(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  const Problem p = checked_problem(a, "attention_given_lse");
  const c10::OptionalDeviceGuard guard(p.q_BTHD.device());
  const Tensor lse = torch::jit::pop(*stack).toTensor();
  check_result(lse, "attention_given_lse", "lse", {p.B, p.softmax_heads, p.T}, p.accumulate(), p.q_BTHD);
  torch::jit::push(*stack, choose(p, Form::two_phase, a.kernel).given_lse(p, lse));
}

void run_head_mix(const c10::OperatorHandle&, Stack* stack) {
  const HeadMix mix = pop_mix(*stack);
  const Tensor scores = torch::jit::pop(*stack).toTensor();
  TORCH_CHECK_VALUE(scores.dim() == 4, "apply_head_mix: scores has shape ", scores.sizes(), ", want [B,N,T,S]");
  TORCH_CHECK_VALUE(scores.is_floating_point(), "apply_head_mix: scores has dtype ", scores.scalar_type(),
                    ", want a floating one");
  for (int i = 0; i < kNumMixParts; ++i) {
    const Tensor& t = mix.part[i];
    if (!t.defined()) continue;
    TORCH_CHECK_VALUE(t.is_floating_point() && t.device() == scores.device(), "apply_head_mix: ", kMixParts[i].name,
                      " is ", t.scalar_type(), " on ", t.device(), ", want a floating dtype on ", scores.device());
  }
  checked_mix(mix, "apply_head_mix", "mix", {scores.size(0), scores.size(2), scores.size(3), scores.size(1)});
  torch::jit::push(*stack, mixed_heads(scores, mix));
}

// ---- Meta: shapes alone; sizes may be symbolic ---------------------------------------------------------------------

at::ScalarType lse_dtype(const Tensor& q) { return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Real sizes are checked here too, so that a wrong shape is found while tracing.
ResultShapes checked_shapes(const Arguments& a, const char* function) {
  bool symbolic = false;
  for (const Tensor& t : a.input) symbolic |= t.defined() && t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  if (!symbolic) checked_problem(a, function);
  return result_shapes(a);
}

Tensor meta_lse_of(const Arguments& a, const ResultShapes& shapes) {
  return at::empty_symint(shapes.lse, a.input[kQ].options().dtype(lse_dtype(a.input[kQ])));
}

void meta_attention(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  const ResultShapes shapes = checked_shapes(a, "composed_attention");
  torch::jit::push(*stack, at::empty_symint(shapes.out, a.input[kQ].options()), meta_lse_of(a, shapes));
}

void meta_backward(const c10::OperatorHandle&, Stack* stack) {
  const c10::List<bool> given = torch::jit::pop(*stack).toBoolList();
  const Arguments a = pop_arguments(*stack);
  torch::jit::drop(*stack, 3);
  const Wanted wanted = checked_wanted(given, a);
  std::vector<Tensor> asked;
  for (int i = 0; i < kNumInputs; ++i)
    if (wanted[i]) asked.push_back(at::empty_symint(a.input[i].sym_sizes(), a.input[i].options()));
  torch::jit::push(*stack, asked);
}

void meta_lse(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  torch::jit::push(*stack, meta_lse_of(a, checked_shapes(a, "attention_lse")));
}

void meta_given_lse(const c10::OperatorHandle&, Stack* stack) {
  const Arguments a = pop_arguments(*stack);
  torch::jit::drop(*stack, 1);
  torch::jit::push(*stack, at::empty_symint(checked_shapes(a, "attention_given_lse").out, a.input[kQ].options()));
}

// ---- Autograd ------------------------------------------------------------------------------------------------------

c10::OperatorHandle handle(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// The backward operator behind a node that refuses to be differentiated again.
class Once : public torch::autograd::Function<Once> {
 public:
  static std::vector<Tensor> forward(torch::autograd::AutogradContext*, at::TensorList, const Stack& arguments) {
    at::AutoDispatchBelowADInplaceOrView below;
    Stack stack = arguments;
    static const auto op = handle("motet::composed_attention_backward");
    op.callBoxed(&stack);
    return torch::jit::pop(stack).toTensorVector();
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext*, const std::vector<Tensor>&) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "composed_attention: second derivatives are not implemented");
  }
};

void autograd_backward(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  std::vector<Tensor> tensors;
  for (const c10::IValue& value : arguments)
    if (value.isTensor()) tensors.push_back(value.toTensor());
  torch::jit::push(*stack, Once::apply(at::TensorList(tensors), arguments));
}

// Forward keeps the inputs, out and lse; backward asks for the gradients that are needed and no others.
class ComposedAttention : public torch::autograd::Function<ComposedAttention> {
 public:
  static std::vector<Tensor> forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                                     const Arguments& given) {
    Arguments a = given;
    std::vector<Tensor> saved;
    for (int i = 0, next = 0; i < kNumInputs; ++i)
      if (a.input[i].defined()) saved.push_back(a.input[i] = inputs[next++]);
    at::AutoDispatchBelowADInplaceOrView below;
    Stack stack;
    push(stack, a);
    static const auto op = handle("motet::composed_attention");
    op.callBoxed(&stack);
    Tensor out = stack[0].toTensor(), lse = stack[1].toTensor();
    saved.insert(saved.end(), {out, lse});
    saved.insert(saved.end(), a.table.begin(), a.table.end());
    context->save_for_backward(saved);
    context->mark_non_differentiable({lse});
    c10::List<bool> present;
    for (Tensor& t : a.input) present.push_back(t.defined()), t = Tensor();
    for (Tensor& t : a.table) t = Tensor();
    Stack rest;
    push(rest, a);
    context->saved_data["present"] = present;
    context->saved_data["rest"] = c10::ivalue::Tuple::create(rest);
    return {out, lse};
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto present = context->saved_data["present"].toBoolList();
    Stack rest = context->saved_data["rest"].toTupleRef().elements().vec();
    Arguments a = pop_arguments(rest);
    const auto saved = context->get_saved_variables();
    size_t next = 0;
    for (int i = 0; i < kNumInputs; ++i)
      if (present[i]) a.input[i] = saved[next++];
    const Tensor out = saved[next++], lse = saved[next++];
    for (Tensor& t : a.table) t = saved[next++];
    return needed_gradients(context, gradients[0], out, lse, a);
  }

 private:
  static std::vector<Tensor> needed_gradients(torch::autograd::AutogradContext* context, const Tensor& dout,
                                              const Tensor& out, const Tensor& lse, const Arguments& a) {
    c10::List<bool> wanted;
    std::vector<bool> needed;  // of the defined inputs, in order
    for (const Tensor& t : a.input) {
      if (t.defined()) needed.push_back(context->needs_input_grad(needed.size()));
      wanted.push_back(t.defined() && needed.back());
    }
    Stack stack;
    torch::jit::push(stack, dout.defined() ? dout : at::zeros_like(out), out, lse);
    push(stack, a);
    stack.emplace_back(wanted);
    static const auto op = handle("motet::composed_attention_backward");
    op.callBoxed(&stack);
    const std::vector<Tensor> asked = torch::jit::pop(stack).toTensorVector();
    std::vector<Tensor> all;
    size_t next = 0;
    for (bool need : needed) all.push_back(need ? asked[next++] : Tensor());
    all.emplace_back();  // Arguments
    return all;
  }
};

// Our node is an autograd function of C++, which torch.func and forward-mode derivatives cannot enter.
void refuse_transforms(const std::vector<Tensor>& inputs) {
  bool inside = false;
  if (const auto& transforms = at::functorch::functorchTLSAccessor()) try {
      transforms->checkSupportsCppAutogradFunction();
    } catch (const c10::Error&) {
      inside = true;
    }
  TORCH_CHECK_NOT_IMPLEMENTED(!inside,
                              "composed_attention: derivatives under torch.func (grad, vjp, jvp, jacrev, "
                              "jacfwd, hessian) are not implemented, want torch.autograd.grad");
  for (const Tensor& t : inputs)
    TORCH_CHECK_NOT_IMPLEMENTED(!t._fw_grad(0).defined(),
                                "composed_attention: forward-mode derivatives (jvp) are not implemented, want "
                                "torch.autograd.grad");
}

void batched_backward(const c10::OperatorHandle&, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "composed_attention: a batch of output gradients at once (is_grads_batched, "
                              "vmap) is not implemented, want one after the other");
}

void autograd_attention(const c10::OperatorHandle&, Stack* stack) {
  Arguments a = pop_arguments(*stack);
  std::vector<Tensor> inputs;
  for (Tensor& t : a.input) {
    if (!t.defined()) continue;
    if (!at::GradMode::is_enabled() && t.requires_grad()) t = t.detach();  // a parameter that nobody asks here
    inputs.push_back(t);
  }
  refuse_transforms(inputs);
  const auto done = ComposedAttention::apply(at::TensorList(inputs), a);
  torch::jit::push(*stack, done[0], done[1]);
}

// ---- Autocast: q, k, v in the autocast dtype; the mixes stay as they are, mixing is done in float32 anyway ----------

template <c10::DeviceType device>
void autocast_attention(const c10::OperatorHandle& op, Stack* stack) {
  constexpr auto key = device == c10::kCPU ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
  Arguments a = pop_arguments(*stack);
  c10::impl::ExcludeDispatchKeyGuard without(key);
  for (int i : {kQ, kK, kV})
    a.input[i] =
        at::autocast::cached_cast(at::autocast::get_lower_precision_fp_from_device_type(device), a.input[i], device);
  for (int i = kBias; i < kNumInputs; ++i)
    if (a.input[i].defined() && a.input[i].scalar_type() != at::kDouble)
      a.input[i] = at::autocast::cached_cast(at::kFloat, a.input[i], device);
  push(*stack, a);
  op.callBoxed(stack);
}

template <Boxed kernel>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

// The kernels choose their precision themselves: an autocast around the call (a backward pass inside its region) must
// not take their own products to half precision.
template <Boxed kernel>
void without_autocast(const c10::OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard without(c10::autocast_dispatch_keyset);
  kernel(op, stack);
}

}  // namespace

TORCH_LIBRARY(motet, m) {
  const std::string arguments = schema_arguments();
  const auto define = [&](const std::string& text) { m.def(torch::schema(text.c_str())); };
  define("composed_attention(" + arguments + ") -> (Tensor out, Tensor lse)");
  define("composed_attention_backward(Tensor dout, Tensor out, Tensor lse, " + arguments +
         ", bool[] wanted) -> Tensor[]");
  define("attention_lse(" + arguments + ") -> Tensor");
  define("attention_given_lse(Tensor lse_of_all, " + arguments + ") -> Tensor");
  define("apply_head_mix(Tensor scores, " + schema_mix_arguments() + ") -> Tensor");
}

static void register_kernels(torch::Library& m) {
  m.impl("composed_attention", boxed<without_autocast<run_attention>>());
  m.impl("composed_attention_backward", boxed<without_autocast<run_backward>>());
  m.impl("attention_lse", boxed<without_autocast<run_lse>>());
  m.impl("attention_given_lse", boxed<without_autocast<run_given_lse>>());
}

TORCH_LIBRARY_IMPL(motet, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(motet, CUDA, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(motet, Meta, m) {
  m.impl("composed_attention", boxed<meta_attention>());
  m.impl("composed_attention_backward", boxed<meta_backward>());
  m.impl("attention_lse", boxed<meta_lse>());
  m.impl("attention_given_lse", boxed<meta_given_lse>());
}
TORCH_LIBRARY_IMPL(motet, Autograd, m) {
  m.impl("composed_attention", boxed<autograd_attention>());
  m.impl("composed_attention_backward", boxed<autograd_backward>());
  m.impl("attention_lse", torch::autograd::autogradNotImplementedFallback());
  m.impl("attention_given_lse", torch::autograd::autogradNotImplementedFallback());
}
TORCH_LIBRARY_IMPL(motet, FuncTorchBatched, m) { m.impl("composed_attention_backward", boxed<batched_backward>()); }
TORCH_LIBRARY_IMPL(motet, Batched, m) { m.impl("composed_attention_backward", boxed<batched_backward>()); }
TORCH_LIBRARY_IMPL(motet, CompositeImplicitAutograd, m) {
  m.impl("apply_head_mix", boxed<without_autocast<run_head_mix>>());
}

template <c10::DeviceType device>
static void register_autocast(torch::Library& m) {
  for (const char* name : {"composed_attention", "attention_lse", "attention_given_lse"})
    m.impl(name, boxed<autocast_attention<device>>());
}

TORCH_LIBRARY_IMPL(motet, AutocastCPU, m) { register_autocast<c10::kCPU>(m); }
TORCH_LIBRARY_IMPL(motet, AutocastCUDA, m) { register_autocast<c10::kCUDA>(m); }

}  // namespace motet
