// The kernels of CUDA's tensor cores and of the CPU's tiles, emulated, beside eager PyTorch in the same dtype: how far
// from float64 both are.
#include <gtest/gtest.h>

#include "motet/attention/cuda.h"
#include "motet/attention/cuda_products.h"
#include "motet/attention/eager.h"
#include "motet/attention/fused.h"
#include "motet/attention/testing.h"
#include "motet/core/testing.h"

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

double apart(const Tensor& x, const Tensor& reference) {
  return ((x.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

// One call on 16 heads of 64, forward and backward.
struct Rounded {
  Arguments a;
  Tensor cotangent, out, eager_out;
  Gradients gradients, eagers;
};

template <class Run>
Rounded call(const Mixing& mixing, at::ScalarType type, Run run) {
  at::manual_seed(7);
  Shape n;
  n.B = 1, n.T = n.S = 96, n.D = n.E = 64, n.Hs = n.Ha = n.Ho = n.Gk = n.Gv = 16;
  if (mixing.lambda_dim >= 0) n.Ho = n.Gv = 8;
  Rounded c{arguments(n, mixing, type)};
  c.a.causal = true;
  c.cotangent = random({n.B, n.T, n.Ho, n.E}, 1, type);
  const Problem p = checked_problem(c.a, "test");
  run(p, c);
  c.eagers = eager_gradients(c.a, c.cotangent, &c.eager_out);
  return c;
}

// Errors of at most `share` of eager PyTorch's.
void expect_share(const std::string& what, const Rounded& c, double share) {
  Arguments wide = c.a;
  for (Tensor& t : wide.input)
    if (t.defined()) t = t.to(at::kDouble);
  const Gradients reference = definition_gradients(wide, c.cotangent.to(at::kDouble));
  const Tensor out = definition(checked_problem(wide, "test")).out_BTHE;
  const auto expect = [&](const std::string& name, const Tensor& mine, const Tensor& eagers, const Tensor& exact) {
    const double own = apart(mine, exact), others = apart(eagers, exact);
    ::testing::Test::RecordProperty(what + ", " + name + " over eager", std::to_string(own / others));
    EXPECT_LE(own, share * others) << name;
  };
  expect("out", c.out, c.eager_out, out);
  for (int i = 0; i < kNumInputs; ++i)
    if (c.a.input[i].defined()) expect(input_name(i), c.gradients[i], c.eagers[i], reference[i]);
}

TEST(CudaRounding, BesideEagerPytorch) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const bool talking : {false, true}) {
      const std::string what = c10::str(type, talking ? " talking heads" : " DCMHA");
      SCOPED_TRACE(what);
      const auto run = [](const Problem& p, Rounded& c) {
        const Attended mine = cuda_forward(p, cuda::attention());
        c.out = mine.out_BTHE;
        c.gradients = cuda_backward(p, {c.cotangent, mine.out_BTHE, mine.lse_BHT, all_wanted(c.a)}, cuda::attention());
      };
      const auto between = [](const Problem& p, Rounded& c) {
        const Attended mine = products_forward(p, cuda::attention());
        c.out = mine.out_BTHE;
        c.gradients =
            products_backward(p, {c.cotangent, mine.out_BTHE, mine.lse_BHT, all_wanted(c.a)}, cuda::attention());
      };
      const Mixing mixing = talking ? Mixing{{"weight"}, {"weight"}} : Mixing{kDcmha, kDcmha};
      expect_share(what + ", between products", call(mixing, type, between), 0.5);
      // In float16 the keys' side multiplies and adds in float16 what eager PyTorch adds in float32.
      expect_share(what, call(mixing, type, run), type == at::kBFloat16 ? 0.5 : 1.75);
    }
}

// Products of bfloat16, sums and mixes in float32. Without a mix over many heads eager PyTorch rounds little more
// often: weights and results, as we do, scores and their gradients.
TEST(TileRounding, BesideEagerPytorch) {
  if (cpu::available_instructions().empty()) GTEST_SKIP() << "this CPU has neither AVX2 nor NEON";
  struct Case {
    const char* name;
    Mixing mixing;
    double share;
  };
  const std::vector<Case> all{{"no mix", {}, 0.8},
                              {"pairs", {{}, {}, 3}, 0.8},
                              {"DCMHA", {kDcmha, kDcmha}, 0.5},
                              {"talking heads", {{"weight"}, {"weight"}}, 0.5}};
  for (const Case& one : all) {
    SCOPED_TRACE(one.name);
    const cpu::Runtime tiles{own_threads(2), cpu::Instructions::emulated_amx};
    const auto run = [&](const Problem& p, Rounded& c) {
      const Attended mine = fused_forward(p, tiles);
      c.out = mine.out_BTHE;
      c.gradients = fused_backward(p, {c.cotangent, mine.out_BTHE, mine.lse_BHT, all_wanted(c.a)}, tiles);
    };
    expect_share(one.name, call(one.mixing, at::kBFloat16, run), one.share);
  }
}

}  // namespace
}  // namespace motet
