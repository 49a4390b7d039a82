#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(Softmax, WindowPatternsNameTheLocalLayers) {
  const std::pair<const char*, std::string> patterns[] = {
      {"local", "LLLLLLLL"}, {"LG", "LGLGLGLG"}, {"LGLL", "LGLLLGLL"}, {"LGL6", "LGLLLLLL"}};
  for (const auto& [name, want] : patterns) {
    std::string got;
    for (int64_t layer = 0; layer < 8; ++layer) {
      const auto m = make({.options = {{"window", 3}, {"window_pattern", name}}, .layer = layer});
      got += m->attention(span_of(0, 1), span_of(0, 1), Pass::whole).visibility.window > 0 ? 'L' : 'G';
    }
    EXPECT_EQ(got, want);
  }
}

TEST(Softmax, AlibiFallsWithDistanceAndDiffersByHead) {
  const auto m = make({.options = {{"position_bias", "alibi"}}});
  const Tensor bias = m->attention(span_of(0, 4), span_of(0, 4), Pass::whole).visibility.bias_BHTS;
  EXPECT_EQ(bias.sizes(), (std::vector<int64_t>{1, 4, 4, 4}));
  EXPECT_NEAR(bias[0][0][3][1].item<double>(), -2 * std::exp2(-2.0), 1e-15);
  EXPECT_NEAR(bias[0][3][3][1].item<double>(), -2 * std::exp2(-8.0), 1e-15);
}

TEST(Softmax, RelativeBiasDependsOnDistanceAlone) {
  const auto m = make({.options = {{"position_bias", "relative"}}});
  const Tensor bias = m->attention(span_of(0, 40), span_of(0, 40), Pass::whole).visibility.bias_BHTS;
  EXPECT_TRUE(bias[0][1][30][10].equal(bias[0][1][39][19]));
  EXPECT_FALSE(bias[0][1][30][10].equal(bias[0][1][30][29]));
}

// o_proj(subln * out / sqrt(mean over the head of out^2 + eps)).
TEST(Softmax, TheHeadNormIsOfEachHeadBeforeTheOutputProjection) {
  at::NoGradGuard no_grad;
  const auto m = make({.options = {{"head_norm", "affine"}, {"head_norm_eps", 0.01}}});
  const auto p = m->named_parameters();
  const Tensor out = at::randn({2, 3, 4, 4}, at::kDouble), size = (out.square().mean(-1, true) + 0.01).sqrt();
  const Tensor want = at::matmul((out / size * p["subln.weight"]).flatten(2), p["o_proj.weight"].t());
  EXPECT_TRUE(m->finish(out, {}).allclose(want, 1e-10, 1e-12));
  EXPECT_FALSE(make({.options = {{"head_norm", "plain"}}})->named_parameters().contains("subln.weight"));
}

}  // namespace
}  // namespace motet
