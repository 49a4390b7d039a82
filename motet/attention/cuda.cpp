// The CUDA kernels (cuda/) as a row of the kernel table: tensors in, plain numbers out, on torch's stream of the device
// and in memory of torch's allocator.
#include "motet/attention/cuda.h"

#include "motet/attention/plain_tensors.h"
#include "motet/ops/cuda_call.h"

namespace motet {
namespace {

const cuda::Api* library() {
  static const auto* const api = cuda_kernels<cuda::Api>("motet_cuda_attention");
  return api;
}

std::string why_not(const Problem& p) {
  return why_not_cuda(p.q_BTHD, library, [&](const cuda::Api& api) { return cuda_why_not(p, api); });
}

// One call of a problem, with its workspace.
class ProblemCall {
 public:
  ProblemCall(const Problem& p, const cuda::Api& api, cuda::Pass pass)
      : call_(p.q_BTHD, api), plain_(p, PlainProblem::Mixes::as_given) {
    call_.reserve(api.workspace_bytes(plain_.get(), pass));
  }
  PlainProblem& plain() { return plain_; }
  const cuda::Runtime& run() const { return call_.run(); }

 private:
  CudaCall call_;
  PlainProblem plain_;
};

void check(const char* error) { CudaCall::check("composed_attention", error); }

}  // namespace

std::string cuda_why_not(const Problem& p, const cuda::Api& api) {
  if (p.q_BTHD.scalar_type() == at::kDouble) return "float64 stays on the plain paths";
  if (p.bias_BHTS.defined()) return "there is a bias";
  if (p.B == 0 || p.T == 0 || p.S == 0 || p.E == 0) return "empty";
  return api.why_not(plain_sizes(p));
}

Attended cuda_forward(const Problem& p, const cuda::Api& api) {
  ProblemCall call(p, api, cuda::Pass::forward);
  Attended done{empty_out(p), empty_lse(p)};
  check(api.forward(call.plain().get(), {done.out_BTHE.mutable_data_ptr(), done.lse_BHT.mutable_data_ptr<float>()},
                    call.run()));
  return done;
}

Gradients cuda_backward(const Problem& p, const Backward& b, const cuda::Api& api) {
  ProblemCall call(p, api, cuda::Pass::backward);
  PlainGradients gradients(p, b.wanted, PlainGradients::Types::inputs);
  cuda::Gradients to{gradients.pointer(kQ), gradients.pointer(kK), gradients.pointer(kV), gradients.floats(kLambda)};
  for (int i = 0; i < kNumMixParts; ++i)
    to.pre[i] = gradients.floats(kPre + i), to.post[i] = gradients.floats(kPost + i);
  const cuda::Incoming from{call.plain().operand(b.dout_BTHE), call.plain().floats(b.lse_BHT)};
  check(api.backward(call.plain().get(), from, to, call.run()));
  return std::move(gradients).finish();
}

Tensor cuda_lse(const Problem& p, const cuda::Api& api) {
  ProblemCall call(p, api, cuda::Pass::lse);
  const Tensor lse_BHT = empty_lse(p);
  check(api.lse(call.plain().get(), lse_BHT.mutable_data_ptr<float>(), call.run()));
  return lse_BHT;
}

Tensor cuda_given_lse(const Problem& p, const Tensor& lse_BHT, const cuda::Api& api) {
  ProblemCall call(p, api, cuda::Pass::given_lse);
  const Tensor out_BTHE = empty_out(p);
  check(api.given_lse(call.plain().get(), call.plain().floats(lse_BHT), out_BTHE.mutable_data_ptr(), call.run()));
  return out_BTHE;
}

const Kernel kCuda{"cuda",
                   why_not,
                   [](const Problem& p) { return cuda_forward(p, *library()); },
                   [](const Problem& p, const Backward& b) { return cuda_backward(p, b, *library()); },
                   [](const Problem& p) { return cuda_lse(p, *library()); },
                   [](const Problem& p, const Tensor& lse) { return cuda_given_lse(p, lse, *library()); }};

}  // namespace motet
