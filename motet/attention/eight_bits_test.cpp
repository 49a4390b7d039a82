// Keys in 8 bits: the same as their widened numbers, read as they lie or widened before.
#include <gtest/gtest.h>

#include "motet/attention/attention.h"
#include "motet/attention/cuda.h"
#include "motet/attention/testing.h"
#include "motet/cuda/emulation.h"

namespace motet {
namespace {

struct Case {
  Queries queries;
  Keys keys;
  KeyScales scales;
  Attention attention;
};

// 6 score heads on 2 stored ones, mixed as DCMHA's gates do where asked for.
Case drawn(int64_t T, bool mixed) {
  at::manual_seed(3);
  const int64_t B = 2, S = 150, H = 6, G = 2, D = 32;
  Case c;
  c.queries.q_BTHD = at::randn({B, T, H, D});
  c.keys.k_BSGD = at::randint(-127, 128, {B, S, G, D}, at::kChar);
  c.keys.v_BSGE = at::randint(-127, 128, {B, S, G, D}, at::kChar);
  c.scales = {at::rand({B, S, G}) * 0.02, at::rand({B, S, G}) * 0.02};
  c.attention.visibility.causal = true;
  if (mixed) {
    c.queries.pre.gate_BTH = at::randn({B, T, H});
    c.attention.pre.identity = true;
  }
  return c;
}

TEST(EightBits, KeysGiveWhatTheirWidenedNumbersGive) {
  for (const int64_t T : {1, 5, 60})  // decoding of a few queries, of more, a prompt
    for (const bool mixed : {false, true})
      for (const bool biased : {false, true}) {  // a bias the row fused does not take
        Case c = drawn(T, mixed);
        if (biased) c.attention.visibility.bias_BHTS = at::randn({1, 1, T, 150});
        const Attended got = composed_attention(c.queries, c.keys, c.scales, c.attention),
                       want = composed_attention(c.queries, widened_keys(c.keys, c.scales), c.attention);
        EXPECT_LE((got.out_BTHE - want.out_BTHE).abs().max().item<double>(), 2e-6) << T << mixed << biased;
        EXPECT_LE((got.lse_BHT - want.lse_BHT).abs().max().item<double>(), 2e-6) << T << mixed << biased;
      }
}

// A cache's slice: scales of a longer memory, one sequence behind the other.
TEST(EightBits, SlicesOfACacheAreReadInPlace) {
  Case c = drawn(1, false), cut = c;
  cut.keys = {c.keys.k_BSGD.slice(1, 0, 90), c.keys.v_BSGE.slice(1, 0, 90), {}, {}};
  cut.scales = {c.scales.k_BSG.slice(1, 0, 90), c.scales.v_BSG.slice(1, 0, 90)};
  const Tensor got = composed_attention(cut.queries, cut.keys, cut.scales, cut.attention).out_BTHE,
               want = composed_attention(cut.queries, widened_keys(cut.keys, cut.scales), cut.attention).out_BTHE;
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-6);
}

// The row cuda with emulated kernels: few queries are theirs, anything else is widened before.
TEST(EightBits, AGpuReadsThemAsTheyLieWhereItDecodes) {
  at::manual_seed(4);
  testing::Shape n;
  n.B = 2, n.S = 90, n.D = n.E = 32, n.Hs = n.Ha = n.Ho = 4, n.Gk = n.Gv = 2;
  for (const int64_t T : {1, 6, 17}) {
    n.T = T;
    Arguments a = testing::arguments(n, {{"weight"}, {"query_gate"}}, at::kFloat);
    a.causal = true;
    Keys keys;
    keys.k_BSGD = at::randint(-127, 128, {n.B, n.S, n.Gk, n.D}, at::kChar);
    keys.v_BSGE = at::randint(-127, 128, {n.B, n.S, n.Gv, n.E}, at::kChar);
    const KeyScales scales{at::rand({n.B, n.S, n.Gk}) * 0.02, at::rand({n.B, n.S, n.Gv}) * 0.02};
    const Keys wide = widened_keys(keys, scales);
    a.input[kK] = wide.k_BSGD, a.input[kV] = wide.v_BSGE;
    Problem p = checked_problem(a, "test");
    const Attended want = cuda_forward(p, cuda::attention());
    p.k_BSGD = keys.k_BSGD, p.v_BSGE = keys.v_BSGE, p.k_scale_BSG = scales.k_BSG, p.v_scale_BSG = scales.v_BSG;
    const std::string reason = cuda_why_not(p, cuda::attention());
    EXPECT_EQ(reason, T > 16 ? "keys in 8 bits beside what decoding takes" : "");
    if (!reason.empty()) continue;
    const Attended got = cuda_forward(p, cuda::attention());
    EXPECT_LE((got.out_BTHE - want.out_BTHE).abs().max().item<double>(), 2e-5) << T;
    EXPECT_LE((got.lse_BHT - want.lse_BHT).abs().max().item<double>(), 2e-5) << T;
  }
  EXPECT_EQ(cuda::emulated::take_fault(), "");
}

TEST(EightBits, WithoutTheirScalesTheyAreRefused) {
  Case c = drawn(1, false);
  EXPECT_THROW(composed_attention(c.queries, c.keys, c.attention), c10::ValueError);
  EXPECT_THROW(composed_attention(c.queries, c.keys, KeyScales{c.scales.k_BSG, {}}, c.attention), c10::ValueError);
  EXPECT_THROW(
      composed_attention(c.queries, c.keys, KeyScales{c.scales.k_BSG, c.scales.v_BSG.slice(1, 1)}, c.attention),
      c10::ValueError);
  EXPECT_THROW(composed_attention(c.queries, widened_keys(c.keys, c.scales), c.scales, c.attention), c10::ValueError);
}

}  // namespace
}  // namespace motet
