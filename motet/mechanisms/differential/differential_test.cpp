#include "motet/mechanisms/differential/differential.h"

#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(Differential, LambdaWorkedExample) {
  const auto m = make({.options = {{"mechanism", "differential"}, {"num_heads", 2}, {"head_dim", 2}}, .layer = 0});
  at::NoGradGuard no_grad;
  auto p = m->named_parameters();
  const auto set = [&](const char* name, double a, double b) { p[name].copy_(at::tensor({a, b}, at::kDouble)); };
  set("lambda_q1", .1, .2), set("lambda_k1", .1, .2), set("lambda_q2", .2, -.1), set("lambda_k2", .1, .1);
  EXPECT_NEAR(dynamic_cast<Differential&>(*m).lambda().item<double>(), 0.2412209, 1e-7);
}

TEST(Differential, LambdaInitFollowsDepth) {
  const double want[] = {0.2, 0.355509, 0.470713, 0.556058};
  for (int64_t layer = 0; layer < 4; ++layer) {
    const auto m = make({.options = {{"mechanism", "differential"}}, .layer = layer});
    EXPECT_NEAR(dynamic_cast<Differential&>(*m).lambda_init(), want[layer], 1e-6);
  }
}

TEST(Differential, GroupedKeysOfV1AlternateInsideAPair) {
  const auto m = make({.options = {{"mechanism", "differential"}, {"num_heads", 8}, {"num_kv_heads", 4}}});
  EXPECT_EQ(m->attention(span_of(0, 1), span_of(0, 1), Pass::whole).heads.key_of,
            (std::vector<int64_t>{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(Differential, WeightOfV2PairsSumsToOneMinusLambda) {
  at::NoGradGuard no_grad;
  const auto m = make({.options = {{"mechanism", "differential"}, {"version", "v2"}}});
  const Tensor x = at::randn({1, 5, 16}, at::kDouble);
  const Queries q = m->queries(x, span_of(0, 5));
  const AttentionMaps maps =
      attention_maps(q, m->keys(x, span_of(0, 5)), m->attention(span_of(0, 5), span_of(0, 5), Pass::whole));
  EXPECT_TRUE(maps.mixed_BHTS.sum(-1).allclose(1 - q.lambda.transpose(1, 2)));
}

}  // namespace
}  // namespace motet
