#include "motet/data/mixture.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using Weights = std::vector<double>;

// Every prefix of two periods: less than one row off; the counts agree with the turns, and a source's rows come in
// turn.
void expect_fair(const Weights& weights, const Weights& parts) {
  const Mixture mixture(weights);
  std::vector<uint64_t> counts(weights.size());
  for (uint64_t row = 0; row < 2 * Mixture::kPeriod + 7; ++row) {
    const Mixture::Turn turn = mixture.turn(row);
    ASSERT_EQ(turn.row, counts[turn.source]++) << row;
    for (size_t i = 0; i < counts.size(); ++i)
      ASSERT_LT(std::abs(static_cast<double>(counts[i]) - parts[i] * static_cast<double>(row + 1)), 1)
          << row << " " << i;
    if (row % 997 == 0 || row > 2 * Mixture::kPeriod) {
      ASSERT_EQ(mixture.counts(row + 1), counts);
    }
  }
}

TEST(Mixture, EverySourceHasItsPartOfAnyFirstRows) {
  expect_fair({0.7, 0.3}, {0.7, 0.3});
  expect_fair({1}, {1});
  expect_fair({2, 1, 1}, {0.5, 0.25, 0.25});
  expect_fair({0.0001, 0.9999}, {0.0001, 0.9999});
  expect_fair(Weights(8, 1), Weights(8, 0.125));
  expect_fair({0.05, 0.31, 0.0021, 0.4379, 0.2}, {0.05, 0.31, 0.0021, 0.4379, 0.2});
}

TEST(Mixture, TenThousandRowsAreWithinOneOfTheWeights) {
  const Weights weights{1, 1, 1, 0.17, M_PI};
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const std::vector<uint64_t> counts = Mixture(weights).counts(10'000);
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_LT(std::abs(static_cast<double>(counts[i]) - 10'000 * weights[i] / sum), 1);
  // Also from any row on.
  const Mixture mixture(weights);
  for (const uint64_t from : {1u, 777u, 9'999u}) {
    const auto before = mixture.counts(from), after = mixture.counts(from + 10'000);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(after[i] - before[i], counts[i]);
  }
}

TEST(Mixture, SourcesTakeTurns) {
  const Mixture mixture(Weights{0.5, 0.25, 0.25});
  for (uint64_t row = 0; row < 100; row += 4) {
    EXPECT_EQ((mixture.turn(row).source == 0) + (mixture.turn(row + 1).source == 0) +
                  (mixture.turn(row + 2).source == 0) + (mixture.turn(row + 3).source == 0),
              2);
  }
}

TEST(Mixture, WrongWeightsAreRefused) {
  EXPECT_EQ(message_of<UsageError>([] { Mixture(Weights{1, 0}); }),
            "data.mixture: the weight 0 is not a number above 0");
  EXPECT_EQ(message_of<UsageError>([] { Mixture(Weights{1, -2}); }),
            "data.mixture: the weight -2 is not a number above 0");
  EXPECT_EQ(message_of<UsageError>([] { Mixture(Weights{1, NAN}); }),
            "data.mixture: the weight nan is not a number above 0");
  EXPECT_EQ(message_of<UsageError>([] { Mixture(Weights{1, 1e-6}); }),
            "data.mixture: the weight 1e-06 is less than one row in 10000 of all weights");
  EXPECT_EQ(message_of<UsageError>([] { Mixture(Weights{}); }), "data.mixture: has 0 sources, want 1 to 1000");
}

}  // namespace
}  // namespace motet
