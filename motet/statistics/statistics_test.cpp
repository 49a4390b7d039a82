#include "motet/statistics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

TEST(Statistics, TDistributionMatchesTables) {  // two-sided 5 % points
  EXPECT_NEAR(two_sided_t(12.706, 1), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(4.303, 2), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(2.228, 10), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(1.984, 100), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(0, 5), 1, 1e-12);
}

TEST(Statistics, QuantilesAreTheInverse) {
  EXPECT_NEAR(t_quantile(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(t_quantile(0.05, 2), 4.30265, 1e-5);
  EXPECT_NEAR(t_quantile(0.05, 4), 2.77645, 1e-5);
  EXPECT_NEAR(two_sided_t(t_quantile(0.01, 7), 7), 0.01, 1e-12);
}

// Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.4641, 2 degrees of freedom; 2 +- 4.30265 / sqrt 3.
TEST(Statistics, PairedDifferenceWorkedExample) {
  const Difference d = paired_difference({2, 4, 6}, {1, 2, 3});
  EXPECT_EQ(d.pairs, 3u);
  EXPECT_NEAR(d.mean, 2, 1e-12);
  EXPECT_NEAR(d.low, 2 - 2.48414, 1e-5);
  EXPECT_NEAR(d.high, 2 + 2.48414, 1e-5);
  EXPECT_NEAR(d.p, 0.0742, 1e-4);
  EXPECT_NEAR(paired_difference({1, 2, 3}, {2, 4, 6}).mean, -2, 1e-12);
}

TEST(Statistics, WhatFewPairsCannotTellIsNoNumber) {
  const Difference one = paired_difference({1}, {3});
  EXPECT_EQ(one.mean, -2);
  EXPECT_TRUE(std::isnan(one.low) && std::isnan(one.high) && std::isnan(one.p));
  EXPECT_EQ(paired_difference({1, 2}, {1, 2}).p, 1);
  EXPECT_EQ(paired_difference({2, 3}, {1, 2}).p, 0);
  EXPECT_EQ(paired_difference({2, 3}, {1, 2}).low, 1);
  EXPECT_EQ(paired_difference({}, {1}).pairs, 0u);
}

TEST(Statistics, RunsThatDidNotEndArePairedWithNothing) {
  const Difference d = paired_difference({1, NAN, 5, 7}, {0, 1, NAN, 4});
  EXPECT_EQ(d.pairs, 2u);
  EXPECT_EQ(d.mean, 2);
}

TEST(Statistics, HolmsWorkedExample) {  // 4 x .005, 3 x .01, 2 x .03, .04, each at least the one before
  const std::vector<double> p = holm({0.01, 0.04, 0.03, 0.005});
  EXPECT_NEAR(p[3], 0.02, 1e-12);
  EXPECT_NEAR(p[0], 0.03, 1e-12);
  EXPECT_NEAR(p[2], 0.06, 1e-12);
  EXPECT_NEAR(p[1], 0.06, 1e-12);
  const std::vector<double> some = holm({NAN, 0.1, 0.2});
  EXPECT_TRUE(std::isnan(some[0]));
  EXPECT_NEAR(some[1], 0.2, 1e-12);
  EXPECT_NEAR(some[2], 0.2, 1e-12);
  EXPECT_EQ(holm({0.6, 0.7})[1], 1);
  EXPECT_EQ(holm({0.03})[0], 0.03);
}

TEST(Statistics, EqualThoseOfScipy) {
  const nlohmann::json golden = read_json("tests/golden/statistics.json");
  ASSERT_EQ(golden["cases"].size(), 24u);
  for (const nlohmann::json& one : golden["cases"]) {
    const std::vector<double> a = one["a"], b = one["b"];
    std::vector<double> differences;
    for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
    const Difference d = paired_difference(a, b);
    const auto near = [&](double found, const char* key) {
      const double want = one[key];
      EXPECT_NEAR(found, want, 1e-9 * std::max(1.0, std::abs(want))) << key << " of " << one.dump();
    };
    near(d.mean, "mean"), near(d.p, "p"), near(d.low, "low"), near(d.high, "high");
    near(sign_flip(differences), "sign_flip");
    near(equivalence(differences, one["margin"]), "equivalence");
    near(slope(a, b), "slope");
  }
}

TEST(Statistics, FlipsAndEquivalenceOfFewNumbersAreNoNumber) {
  EXPECT_TRUE(std::isnan(sign_flip({1})) && std::isnan(equivalence({1}, 2)));
  EXPECT_EQ(sign_flip({1, NAN, 1}), 0.5);
  EXPECT_EQ(equivalence({1, 1}, 2), 0);
  EXPECT_EQ(equivalence({1, 1}, 0.5), 1);
  EXPECT_EQ(testing::message_of<Error>([] { sign_flip(std::vector<double>(25, 1)); }),
            "sign_flip: 25 differences, want at most 24");
}

}  // namespace
}  // namespace motet
