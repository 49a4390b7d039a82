#pragma once
#include "motet/attention/cuda.h"
#include "motet/attention/definition.h"
#include "motet/attention/kernels.h"

// Random operator problems for tests: every part by name, seeded.
namespace motet::testing {

struct Shape {
  int64_t B = 2, T = 7, S = 9, Hs = 4, Ha = 4, Ho = 4, Gk = 4, Gv = 4, D = 5, E = 6, R = 2;
};

/// Which parts exist: names of kMixParts; "identity" sets the flag; "pairs" (post only) makes lambda of that dimension.
struct Mixing {
  std::vector<std::string> pre, post;
  int lambda_dim = -1;
};

inline Tensor random(std::vector<int64_t> shape, double scale, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::kDouble).mul_(scale).to(type);
}

inline Arguments arguments(const Shape& n, const Mixing& mixing, at::ScalarType type = at::kDouble) {
  Arguments a;
  a.input[kQ] = random({n.B, n.T, n.Hs, n.D}, 1, type);
  a.input[kK] = random({n.B, n.S, n.Gk, n.D}, 1, type);
  a.input[kV] = random({n.B, n.S, n.Gv, n.E}, 1, type);
  const auto add = [&](const std::vector<std::string>& names, int first, int64_t N, int64_t M, bool& identity) {
    for (const std::string& name : names) {
      if (name == "identity") identity = true;
      for (int i = 0; i < kNumMixParts; ++i) {
        if (kMixParts[i].name != name) continue;
        std::vector<int64_t> shape;
        for (char c : kMixParts[i].shape)
          shape.push_back(c == 'B' ? n.B : c == 'T' ? n.T : c == 'S' ? n.S : c == 'R' ? n.R : c == 'N' ? N : M);
        a.input[first + i] = random(shape, 0.5, type);
      }
    }
  };
  add(mixing.pre, kPre, n.Hs, n.Ha, a.pre_identity);
  add(mixing.post, kPost, n.Ha, n.Ho, a.post_identity);
  if (mixing.lambda_dim == 0) a.input[kLambda] = random({}, 0.5, type);
  if (mixing.lambda_dim == 1) a.input[kLambda] = random({n.Ha / 2}, 0.5, type);
  if (mixing.lambda_dim == 3) a.input[kLambda] = random({n.B, n.T, n.Ha / 2}, 0.5, type);
  return a;
}

inline const std::vector<std::string> kAllSquare{"identity",   "weight",   "query_down", "query_up", "query_gate",
                                                 "query_full", "key_down", "key_up",     "key_gate", "key_full"};
inline const std::vector<std::string> kDcmha{"identity", "query_down", "query_up", "query_gate",
                                             "key_down", "key_up",     "key_gate"};
inline const std::vector<std::string> kRect{"weight",   "query_down", "query_up", "query_full",
                                            "key_down", "key_up",     "key_full"};

/// The CUDA kernels, emulated on the host.
inline const Kernel kEmulatedCuda{
    "cuda, emulated",
    [](const Problem& p) { return cuda_why_not(p, cuda::attention()); },
    [](const Problem& p) { return cuda_forward(p, cuda::attention()); },
    [](const Problem& p, const Backward& b) { return cuda_backward(p, b, cuda::attention()); },
    [](const Problem& p) { return cuda_lse(p, cuda::attention()); },
    [](const Problem& p, const Tensor& lse_BHT) { return cuda_given_lse(p, lse_BHT, cuda::attention()); }};

/// The rows of the kernel table that run the problem; `emulated`: and the one that it has of a GPU.
inline std::vector<const Kernel*> able_kernels(const Problem& p, bool emulated = false) {
  std::vector<const Kernel*> able;
  for (const Kernel* kernel : kernel_table())
    if (kernel->why_not(p).empty()) able.push_back(kernel);
  if (emulated && kEmulatedCuda.why_not(p).empty()) able.push_back(&kEmulatedCuda);
  return able;
}

/// Every gradient that there is.
inline Wanted all_wanted(const Arguments& a) {
  Wanted wanted;
  for (int i = 0; i < kNumInputs; ++i) wanted[i] = a.input[i].defined();
  return wanted;
}

inline Tensor integers(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// Leaves that require a gradient, so that two implementations can be compared on the same numbers.
inline Arguments with_gradients(Arguments a) {
  for (Tensor& t : a.input)
    if (t.defined()) t = t.detach().clone().requires_grad_();
  return a;
}

/// max |a - b| / max(|b|, floor)
inline double relative_error(const Tensor& a, const Tensor& b, double floor = 1e-12) {
  if (!b.numel()) return 0;
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max().clamp_min(floor))
      .item<double>();
}

/// Gradients of sum(out * cotangent) by the definition under autograd.
inline Gradients definition_gradients(const Arguments& given, const Tensor& cotangent) {
  const Arguments a = with_gradients(given);
  const Tensor out = definition(checked_problem(a, "test")).out_BTHE;
  std::vector<Tensor> leaves;
  for (const Tensor& t : a.input)
    if (t.defined()) leaves.push_back(t);
  const auto found = torch::autograd::grad({out}, leaves, {cotangent.to(out.scalar_type())}, {}, false, true);
  Gradients g;
  size_t next = 0;
  for (int i = 0; i < kNumInputs; ++i)
    if (a.input[i].defined()) g[i] = found[next].defined() ? found[next] : at::zeros_like(a.input[i]), ++next;
  return g;
}

}  // namespace motet::testing
