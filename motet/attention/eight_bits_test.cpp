// Keys in 8 bits, and on a GPU in 16: the same as their widened numbers, read as they lie or widened before.
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

Tensor bytes(std::vector<int64_t> shape) { return at::randint(-127, 128, shape, at::kChar); }

// Everything that the key side of a mix can have.
void add_mix(KeyMix& mix, KeyMix& scale, int64_t B, int64_t S, int64_t H) {
  const int64_t R = 2;
  mix = {bytes({B, S, R, H}), bytes({B, S, R, H}), bytes({B, S, H}), bytes({B, S, H, H})};
  scale = {at::rand({B, S, R}) * 0.004, at::rand({B, S, R}) * 0.004, at::rand({B, S}) * 0.004,
           at::rand({B, S, H}) * 0.004};
}

// 6 score heads on 2 stored ones, mixed as DCMHA's gates do where asked for, and by everything that a key has.
Case drawn(int64_t T, bool mixed) {
  at::manual_seed(3);
  const int64_t B = 2, S = 150, H = 6, G = 2, D = 32;
  Case c;
  c.queries.q_BTHD = at::randn({B, T, H, D});
  c.keys.k_BSGD = bytes({B, S, G, D}), c.keys.v_BSGE = bytes({B, S, G, D});
  c.scales = {at::rand({B, S, G}) * 0.02, at::rand({B, S, G}) * 0.02};
  c.attention.visibility.causal = true;
  if (mixed) {
    c.queries.pre.gate_BTH = at::randn({B, T, H});
    c.attention.pre.identity = true;
    add_mix(c.keys.pre, c.scales.pre, B, S, H), add_mix(c.keys.post, c.scales.post, B, S, H);
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
        EXPECT_LE(testing::relative_error(got.out_BTHE, want.out_BTHE), 4e-6) << T << mixed << biased;
        EXPECT_LE(testing::relative_error(got.lse_BHT, want.lse_BHT), 4e-6) << T << mixed << biased;
      }
}

// A cache's slice: scales of a longer memory, one sequence behind the other.
TEST(EightBits, SlicesOfACacheAreReadInPlace) {
  Case cut = drawn(1, true);
  const auto slice = [](Tensor& x) { x = x.slice(1, 0, 90); };
  for_each_tensor(cut.keys, slice), for_each_scale(cut.scales, slice);
  const Tensor got = composed_attention(cut.queries, cut.keys, cut.scales, cut.attention).out_BTHE,
               want = composed_attention(cut.queries, widened_keys(cut.keys, cut.scales), cut.attention).out_BTHE;
  EXPECT_LE(testing::relative_error(got, want), 4e-6);
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
    Case c;
    c.keys.k_BSGD = bytes({n.B, n.S, n.Gk, n.D}), c.keys.v_BSGE = bytes({n.B, n.S, n.Gv, n.E});
    c.scales = {at::rand({n.B, n.S, n.Gk}) * 0.02, at::rand({n.B, n.S, n.Gv}) * 0.02};
    add_mix(c.keys.pre, c.scales.pre, n.B, n.S, n.Hs), add_mix(c.keys.post, c.scales.post, n.B, n.S, n.Hs);
    const auto given = flatten({}, c.keys, {}).input, wide = flatten({}, widened_keys(c.keys, c.scales), {}).input,
               scales = flatten({}, {c.scales.k_BSG, c.scales.v_BSG, c.scales.pre, c.scales.post}, {}).input;
    for (int i = 0; i < kNumInputs; ++i)
      if (wide[i].defined()) a.input[i] = wide[i];
    Problem p = checked_problem(a, "test");
    const Attended want = cuda_forward(p, cuda::attention());
    p.scales = scales;
    for (int i = 0; i < kNumInputs; ++i)
      if (given[i].defined()) p.input(i) = given[i];
    const std::string reason = cuda_why_not(p, cuda::attention());
    EXPECT_EQ(reason, T > 16 ? "keys in 8 bits beside what decoding takes" : "");
    if (!reason.empty()) continue;
    const Attended got = cuda_forward(p, cuda::attention());
    EXPECT_LE(testing::relative_error(got.out_BTHE, want.out_BTHE), 2e-5) << T;
    EXPECT_LE(testing::relative_error(got.lse_BHT, want.lse_BHT), 2e-5) << T;
  }
  EXPECT_EQ(cuda::emulated::take_fault(), "");
}

// Every part of the key side in 16 bits under queries of 32: by decoding's kernels and the general ones.
TEST(EightBits, AGpuReadsSixteenBitsAsTheyLie) {
  at::manual_seed(5);
  testing::Shape n;
  n.B = 1, n.S = 90, n.D = n.E = 16, n.Hs = n.Ha = n.Ho = 4, n.Gk = n.Gv = 2;
  for (const int64_t T : {1, 6, 20}) {
    n.T = T;
    Arguments a = testing::arguments(n, {testing::kAllSquare, testing::kDcmha}, at::kFloat), wide = a;
    for (int i = 0; i < kNumInputs; ++i) {
      const bool cached = i == kK || i == kV || (i >= kPre && plain::by_key((i - kPre) % kNumMixParts));
      if (!cached || !a.input[i].defined()) continue;
      a.input[i] = a.input[i].to(at::kBFloat16), wide.input[i] = a.input[i].to(at::kFloat);
    }
    const Problem p = checked_problem(a, "test"), p_wide = checked_problem(wide, "test");
    EXPECT_EQ(cuda_why_not(p, cuda::attention()), "");
    const Attended got = cuda_forward(p, cuda::attention()), want = cuda_forward(p_wide, cuda::attention());
    EXPECT_TRUE(got.out_BTHE.equal(want.out_BTHE) && got.lse_BHT.equal(want.lse_BHT)) << T;
    const Tensor dout = at::randn_like(want.out_BTHE);
    const Gradients back = cuda_backward(p, {dout, want.out_BTHE, want.lse_BHT, testing::all_wanted(a)},
                                         cuda::attention()),
                    expected = cuda_backward(p_wide, {dout, want.out_BTHE, want.lse_BHT, testing::all_wanted(a)},
                                             cuda::attention());
    for (int i = 0; i < kNumInputs; ++i)
      if (back[i].defined()) {
        EXPECT_TRUE(back[i].equal(expected[i].to(back[i].scalar_type()))) << T << " " << input_name(i);
      }
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
  c = drawn(1, true);
  KeyScales some = c.scales;
  some.post.gate_BSH = Tensor();
  try {
    composed_attention(c.queries, c.keys, some, c.attention);
    ADD_FAILURE() << "taken";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("the scales of post_key_gate want float32 of shape [2, 150]"),
              std::string::npos);
  }
  some = c.scales;
  c.keys.post.gate_BSH = Tensor();
  EXPECT_THROW(composed_attention(c.queries, c.keys, some, c.attention), c10::ValueError);
  c = drawn(1, true);
  some.post.gate_BSH = c.scales.post.gate_BSH.slice(1, 1);
  EXPECT_THROW(composed_attention(c.queries, c.keys, some, c.attention), c10::ValueError);
}

}  // namespace
}  // namespace motet
