// The fused CPU kernels (cpu/) as a row of the kernel table: tensors in, plain numbers out.
#include "motet/attention/fused.h"

#include "motet/attention/cpu/workspace.h"
#include "motet/attention/plain_tensors.h"
#include "motet/core/error.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

std::string why_not(const Problem& p) {
  if (!p.q_BTHD.is_cpu()) return "only on the CPU";
  if (p.q_BTHD.scalar_type() == at::kDouble) return "float64 stays on the plain paths";
  if (p.bias_BHTS.defined()) return "there is a bias";
  if (p.B == 0 || p.T == 0 || p.S == 0 || p.E == 0) return "empty";
  return cpu::why_not(cpu::Instructions::best).empty() ? "" : "this CPU has no AVX2";
}

std::string why_not_amx(const Problem& p) {
  const std::string reason = why_not(p);
  return reason.empty() ? cpu::why_not(cpu::Instructions::amx) : reason;
}

// In bfloat16 tiles took 0.24 to 0.47 of the time of vectors forward and 0.6 to 0.8 backward; in float32 they win for
// plain heads alone, and that little (docs/kernels.md).
std::string rather_not_amx(const Problem& p, Form form) {
  const bool high = p.precision == Precision::high;
  if (high || (p.q_BTHD.scalar_type() == at::kBFloat16 && form != Form::two_phase)) return "";
  return "by itself it takes bfloat16 in one phase";
}

PlainProblem plain_problem(const Problem& p) { return {p, PlainProblem::Mixes::key_side_as_given}; }

void check(cpu::Status status) {
  TORCH_CHECK(status == cpu::Status::ok, "composed_attention: out of memory in the fused kernel");
}

cpu::Runtime with_precision(cpu::Runtime run, const Problem& p) {
  run.precision = p.precision;
  return run;
}

template <cpu::Instructions kInstructions>
cpu::Runtime runtime(const Problem& p) {
  return with_precision({torch_threads(), kInstructions}, p);
}

template <cpu::Instructions kInstructions>
Tensor lse(const Problem& p) {
  const Tensor lse_BHT = empty_lse(p);
  check(cpu::lse(plain_problem(p).get(), lse_BHT.mutable_data_ptr<float>(), runtime<kInstructions>(p)));
  return lse_BHT;
}

template <cpu::Instructions kInstructions>
Tensor given_lse(const Problem& p, const Tensor& lse_BHT) {
  const Tensor out_BTHE = empty_out(p);
  PlainProblem plain = plain_problem(p);
  check(cpu::given_lse(plain.get(), plain.floats(lse_BHT), out_BTHE.mutable_data_ptr(), runtime<kInstructions>(p)));
  return out_BTHE;
}

template <cpu::Instructions kInstructions>
constexpr Kernel row(const char* name, std::string (*why)(const Problem&),
                     std::string (*rather_not)(const Problem&, Form) = nullptr) {
  return {name,
          why,
          [](const Problem& p) { return fused_forward(p, runtime<kInstructions>(p)); },
          [](const Problem& p, const Backward& b) { return fused_backward(p, b, runtime<kInstructions>(p)); },
          lse<kInstructions>,
          given_lse<kInstructions>,
          rather_not,
          true};
}

}  // namespace

std::string why_not_high(at::Device device, at::ScalarType type) {
  const std::string wanted = "it is of float32 products by AMX tiles (amx_tile, amx_bf16)";
  if (!device.is_cpu()) return wanted + " on a CPU, not " + device.str();
  if (type != at::kFloat) return wanted + ", not " + c10::toString(type);
  const std::string reason = cpu::why_not(cpu::Instructions::amx);
  return reason.empty() ? "" : wanted + ", and " + reason;
}

void check_precision(Precision precision, at::Device device, at::ScalarType type, const std::string& what) {
  const std::string reason = precision == Precision::high ? why_not_high(device, type) : "";
  if (!reason.empty()) fail_usage(what, ": high, want highest: ", reason);
}

void release_fused_memory() { cpu::release_workspaces(); }

Attended fused_forward(const Problem& p, const cpu::Runtime& runtime) {
  Attended done{empty_out(p), empty_lse(p)};
  check(cpu::forward(plain_problem(p).get(), {done.out_BTHE.mutable_data_ptr(), done.lse_BHT.mutable_data_ptr<float>()},
                     with_precision(runtime, p)));
  return done;
}

Gradients fused_backward(const Problem& p, const Backward& b, const cpu::Runtime& runtime) {
  PlainGradients gradients(p, b.wanted, PlainGradients::Types::float32);
  cpu::Gradients to{gradients.floats(kQ), gradients.floats(kK), gradients.floats(kV), gradients.floats(kLambda)};
  for (int i = 0; i < kNumMixParts; ++i)
    to.pre[i] = gradients.floats(kPre + i), to.post[i] = gradients.floats(kPost + i);
  PlainProblem plain = plain_problem(p);
  const cpu::Incoming from{plain.operand(b.dout_BTHE), plain.operand(b.out_BTHE), plain.floats(b.lse_BHT)};
  check(cpu::backward(plain.get(), from, to, with_precision(runtime, p)));
  return std::move(gradients).finish();
}

constinit const Kernel kFused = row<cpu::Instructions::best>("fused", why_not);
constinit const Kernel kFusedAmx = row<cpu::Instructions::amx>("fused_amx", why_not_amx, rather_not_amx);

}  // namespace motet
