#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

// The worked example of README.md: one pair, theta 1, q = (1, 2), T0 = (.6, .2), so h = .4; scores times sqrt(2).
double score(const char* form, double q1, double q2, int64_t m, int64_t n) {
  const auto c = make({.options = {{"mechanism", "coca"}, {"form", form}, {"num_heads", 1}}, .hidden_size = 2});
  at::NoGradGuard no_grad;
  for (auto& p : c->named_parameters()) p.value().copy_(at::eye(2, at::kDouble));
  const Tensor x = at::tensor({q1, q2}, at::kDouble).view({1, 1, 2}),
               t = at::tensor({0.6, 0.2}, at::kDouble).view({1, 1, 2});
  return (c->queries(x, Positions::range(m, m + 1, 8)).q_BTHD * c->keys(t, Positions::range(n, n + 1, 8)).k_BSGD)
      .sum()
      .item<double>();
}

TEST(Coca, WorkedExample) {
  EXPECT_NEAR(score("exact", 1, 2, 2, 1), 1.080605, 1e-6);
  EXPECT_NEAR(score("exact", 1, 2, 3, 2), 1.080605, 1e-6);
  EXPECT_NEAR(score("slack", 1, 2, 2, 1), 0.354335, 1e-6);
  EXPECT_NEAR(score("slack", 1, 2, 3, 2), -0.050961, 1e-6);
  EXPECT_NEAR(score("slack", 1, 2, 1, 1), 2.262349, 1e-6);
  EXPECT_NEAR(score("strict", 1, 2, 2, 1), 0.972544, 1e-6);
  EXPECT_NEAR(score("strict", 1, 2, 0, 0), 1.8, 1e-12);
}

TEST(Coca, ExactScoreIsLargestAtDistanceZero) {
  for (int64_t n = 0; n < 5; ++n) EXPECT_LE(score("exact", 0.3, -1.4, 5, n), score("exact", 0.3, -1.4, 5, 5));
}

}  // namespace
}  // namespace motet
