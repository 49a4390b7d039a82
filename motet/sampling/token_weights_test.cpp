#include "motet/sampling/token_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace motet {
namespace {

TEST(TokenWeights, PowersOfTwoAreThoseOfDouble) {
  double worst = 0;
  for (int64_t i = 1; i < 126 * 2000; ++i) {  // halves, whose whole part is either of two, among them
    const float y = -static_cast<float>(i) / 2000;
    worst = std::max(worst, std::abs(power_of_two(y) / std::exp2(static_cast<double>(y)) - 1));
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(power_of_two(0), 1);
  EXPECT_GT(power_of_two(-125.99f), 0);
}

// What is too small for a normal number is 0 and does not wrap around to a large one.
TEST(TokenWeights, PowersThatAreTooSmallAreNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float y : {-126.f, -127.5f, -128.f, -200.f, -256.f, -1e4f, -8e6f, -1e30f,
                        -std::numeric_limits<float>::max(), -infinity, std::nanf("")})
    EXPECT_EQ(power_of_two(y), 0) << y;
}

TEST(TokenWeights, EachTokenHasItsPartOfTheTotal) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const size_t size : {1, 15, 16, 17, 255, 256, 257, 600, 1024}) {
    std::vector<float> logits(size);
    double total = 0, before = 0;
    for (size_t i = 0; i < size; ++i) {
      logits[i] = i % 5 == 1 ? -infinity : 3 - static_cast<float>(i % 7);
      total += std::exp((logits[i] - 3) / 0.8);
    }
    TokenWeights weights;
    weights.set(logits, 3, 0.8);
    ASSERT_NEAR(weights.total(), total, 1e-6 * total) << size;
    for (size_t i = 0; i < size; ++i) {
      const double weight = std::exp((logits[i] - 3) / 0.8);
      if (weight == 0) continue;
      ASSERT_EQ(weights.at((before + 0.01 * weight) / total), static_cast<int32_t>(i)) << size;
      ASSERT_EQ(weights.at((before + 0.99 * weight) / total), static_cast<int32_t>(i)) << size;
      before += weight;
    }
  }
}

// Where rounding leaves a rest, it goes to the last token that has a weight.
TEST(TokenWeights, NothingIsReachedBehindTheLastWeight) {
  std::vector<float> logits(700, -std::numeric_limits<float>::infinity());
  logits[2] = 0, logits[270] = -1;
  TokenWeights weights;
  weights.set(logits, 0, 1);
  EXPECT_EQ(weights.at(0), 2);
  EXPECT_EQ(weights.at(1 - 0x1p-53), 270);
  EXPECT_EQ(weights.at(1.5), 270);
}

TEST(TokenWeights, TheFloorLeavesOutNoMoreThanItMayAndNotMuchLess) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    std::normal_distribution<float> normal(0, round % 4 == 0 ? 0.01f : 3.f);
    std::vector<float> logits(1 + random() % 3000);
    for (float& x : logits) x = normal(random);
    const float most = *std::max_element(logits.begin(), logits.end());
    TokenWeights weights;
    weights.set(logits, most, 1);
    for (const double part : {0.9, 0.5, 0.1, 0.01, 1e-4}) {
      const double left_out = part * weights.total(), floor = weights.log_floor(left_out);
      double below = 0, below_more = 0;
      for (const float x : logits) {
        below += x - most < floor ? std::exp(static_cast<double>(x) - most) : 0;
        below_more += x - most < floor + 0.7 ? std::exp(static_cast<double>(x) - most) : 0;
      }
      EXPECT_LE(below, left_out + 1e-6 * weights.total());
      EXPECT_GT(below_more, left_out - 1e-6 * weights.total()) << part << " of " << logits.size();
    }
  }
}

}  // namespace
}  // namespace motet
