#pragma once
#include "motet/attention/cuda/problem.h"
#include "motet/attention/plain_tensors.h"
#include "motet/ops/cuda_call.h"

// What every call of the CUDA kernels of the operator does with tensors.
namespace motet {

/// One call of a problem, with its workspace once that is reserved.
class ProblemCall {
 public:
  ProblemCall(const Problem& p, const cuda::Api& api)
      : api_(api), call_(p.q_BTHD, api), plain_(p, PlainProblem::Mixes::as_given) {}
  const cuda::Runtime& reserve(cuda::Pass pass) {
    call_.reserve(api_.workspace_bytes(plain_.get(), pass));
    return call_.run();
  }
  PlainProblem& plain() { return plain_; }
  const plain::Problem& get() const { return plain_.get(); }
  static void check(const char* error) { CudaCall::check("composed_attention", error); }

 private:
  const cuda::Api& api_;
  CudaCall call_;
  PlainProblem plain_;
};

inline cuda::Gradients pointers(const PlainGradients& gradients) {
  cuda::Gradients to{gradients.pointer(kQ), gradients.pointer(kK), gradients.pointer(kV), gradients.floats(kLambda)};
  for (int i = 0; i < kNumMixParts; ++i)
    to.pre[i] = gradients.floats(kPre + i), to.post[i] = gradients.floats(kPost + i);
  return to;
}

}  // namespace motet
