// The CUDA kernels (cuda/) as a row of the kernel table: tensors in, plain numbers out, on torch's stream of the device
// and in memory of torch's allocator.
#include "motet/attention/cuda.h"

#include "motet/attention/cuda_problem.h"
#include "motet/attention/cuda_products.h"

namespace motet {
namespace {

const cuda::Api* library() {
  static const auto* const api = cuda_kernels<cuda::Api>("motet_cuda_attention");
  return api;
}

std::string why_not(const Problem& p) {
  return why_not_cuda(p.q_BTHD, library, [&](const cuda::Api& api) { return cuda_why_not(p, api); });
}

// Where only the general kernels would be left.
bool by_products(const Problem& p, const ProblemCall& call, const cuda::Api& api, cuda::Pass pass) {
  return products_why_not(p).empty() && !api.has_own(call.get(), pass);
}

// A tile holds numbers for each rank of a mix: those of 8 fit beside 64 heads wherever the shortest tile does.
bool ranks_fit(const HeadMix& mix) {
  for (const int down : {kQueryDown, kKeyDown})
    if (mix.has(down) && mix.part[down].size(2) > 8) return false;
  return true;
}

}  // namespace

std::string cuda_why_not(const Problem& p, const cuda::Api& api) {
  if (p.q_BTHD.scalar_type() == at::kDouble) return "float64 stays on the plain paths";
  if (p.bias_BHTS.defined()) return "there is a bias";
  if (p.B == 0 || p.T == 0 || p.S == 0 || p.E == 0) return "empty";
  if (!ranks_fit(p.pre) || !ranks_fit(p.post)) return "a rank beyond 8";
  // Mixes in 8 bits are widened where they are read, not to be looked at.
  const auto decodes = [&] {
    return api.has_own(PlainProblem(p, PlainProblem::Mixes::key_side_as_given).get(), cuda::Pass::forward);
  };
  if (p.scales[kK].defined() && !decodes()) return "keys in 8 bits beside what decoding takes";
  return api.why_not(plain_sizes(p));
}

Attended cuda_forward(const Problem& p, const cuda::Api& api) {
  ProblemCall call(p, api);
  if (by_products(p, call, api, cuda::Pass::forward)) return products_forward(p, api);
  Attended done{empty_out(p), empty_lse(p)};
  const cuda::Output to{done.out_BTHE.mutable_data_ptr(), done.lse_BHT.mutable_data_ptr<float>()};
  ProblemCall::check(api.forward(call.get(), to, call.reserve(cuda::Pass::forward)));
  return done;
}

Gradients cuda_backward(const Problem& p, const Backward& b, const cuda::Api& api) {
  ProblemCall call(p, api);
  if (by_products(p, call, api, cuda::Pass::backward)) return products_backward(p, b, api);
  PlainGradients gradients(p, b.wanted, PlainGradients::Types::inputs);
  const Tensor dout_BTHE = b.dout_BTHE.contiguous();  // tensor cores read no repeated rows, as a mean's gradient has
  const cuda::Incoming from{call.plain().operand(dout_BTHE), call.plain().floats(b.lse_BHT)};
  ProblemCall::check(api.backward(call.get(), from, pointers(gradients), call.reserve(cuda::Pass::backward)));
  return std::move(gradients).finish();
}

Tensor cuda_lse(const Problem& p, const cuda::Api& api) {
  ProblemCall call(p, api);
  if (by_products(p, call, api, cuda::Pass::lse)) return products_lse(p, api);
  const Tensor lse_BHT = empty_lse(p);
  ProblemCall::check(api.lse(call.get(), lse_BHT.mutable_data_ptr<float>(), call.reserve(cuda::Pass::lse)));
  return lse_BHT;
}

Tensor cuda_given_lse(const Problem& p, const Tensor& lse_BHT, const cuda::Api& api) {
  ProblemCall call(p, api);
  if (by_products(p, call, api, cuda::Pass::given_lse)) return products_given_lse(p, lse_BHT, api);
  const Tensor out_BTHE = empty_out(p);
  ProblemCall::check(api.given_lse(call.get(), call.plain().floats(lse_BHT), out_BTHE.mutable_data_ptr(),
                                   call.reserve(cuda::Pass::given_lse)));
  return out_BTHE;
}

const Kernel kCuda{"cuda",
                   why_not,
                   [](const Problem& p) { return cuda_forward(p, *library()); },
                   [](const Problem& p, const Backward& b) { return cuda_backward(p, b, *library()); },
                   [](const Problem& p) { return cuda_lse(p, *library()); },
                   [](const Problem& p, const Tensor& lse) { return cuda_given_lse(p, lse, *library()); },
                   nullptr,
                   true};

}  // namespace motet
