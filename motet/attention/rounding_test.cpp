// The CUDA kernels of tensor cores, emulated, beside eager PyTorch in the same dtype: how far from float64 both are.
#include <gtest/gtest.h>

#include "motet/attention/cuda.h"
#include "motet/attention/eager.h"
#include "motet/attention/testing.h"

namespace motet {
namespace {

using namespace motet::testing;

Gradients eager_gradients(const Arguments& given, const Tensor& cotangent, Tensor* out) {
  const Arguments a = with_gradients(given);
  *out = eager(checked_problem(a, "test"));
  std::vector<Tensor> leaves;
  for (const Tensor& t : a.input)
    if (t.defined()) leaves.push_back(t);
  const auto found = torch::autograd::grad({*out}, leaves, {cotangent});
  Gradients g;
  for (int i = 0, next = 0; i < kNumInputs; ++i)
    if (a.input[i].defined()) g[i] = found[next++];
  return g;
}

double distance(const Tensor& x, const Tensor& reference) {
  return ((x.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

TEST(CudaRounding, BesideEagerPytorch) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const bool talking : {false, true}) {
      SCOPED_TRACE(c10::str(type, talking ? " talking heads" : " DCMHA"));
      at::manual_seed(7);
      Shape n;
      n.B = 1, n.T = n.S = 96, n.D = n.E = 64, n.Hs = n.Ha = n.Ho = n.Gk = n.Gv = 16;
      Mixing mixing{kDcmha, kDcmha};
      if (talking) mixing = {{"weight"}, {"weight"}};
      Arguments a = arguments(n, mixing, type), wide = a;
      a.causal = wide.causal = true;
      for (Tensor& t : wide.input)
        if (t.defined()) t = t.to(at::kDouble);
      const Tensor cotangent = random({n.B, n.T, n.Ho, n.E}, 1, type);
      const Problem p = checked_problem(a, "test");
      const Attended mine = cuda_forward(p, cuda::attention());
      const Gradients got =
          cuda_backward(p, {cotangent, mine.out_BTHE, mine.lse_BHT, all_wanted(a)}, cuda::attention());
      Tensor eager_out;
      const Gradients eagers = eager_gradients(a, cotangent, &eager_out);
      const Gradients reference = definition_gradients(wide, cotangent.to(at::kDouble));
      const Tensor out = definition(checked_problem(wide, "test")).out_BTHE;
      // In float16 the keys' side multiplies and adds in float16 what eager PyTorch adds in float32.
      const double share = type == at::kBFloat16 ? 0.5 : 1.75;
      EXPECT_LE(distance(mine.out_BTHE, out), share * distance(eager_out, out));
      for (int i = 0; i < kNumInputs; ++i)
        if (a.input[i].defined()) {
          EXPECT_LE(distance(got[i], reference[i]), share * distance(eagers[i], reference[i])) << input_name(i);
        }
    }
}

}  // namespace
}  // namespace motet
