// What the figures of `motet bench` come to, by hand.
#include <gtest/gtest.h>

#include "motet/attention/testing.h"
#include "motet/bench/attention_bench.h"
#include "motet/bench/goals.h"
#include "motet/bench/infer_bench.h"
#include "motet/bench/passes.h"

namespace motet {
namespace {

Goal goal(double limit, bool at_least, bool wall, Time of, Time over) {
  Goal made{"g", "a", "b", limit, at_least, wall};
  made.of_time = of, made.over_time = over;
  return made;
}

TEST(Goals, AreRatiosOfProcessorTimeOrOfTheClock) {
  const Time of{6, 1}, over{2, 4};  // clock, processor
  EXPECT_EQ(goal(1, false, false, of, over).measured(), 0.25);
  EXPECT_EQ(goal(1, false, true, of, over).measured(), 3);
}

TEST(Goals, AreReachedWithinFivePercent) {
  const auto reached = [](double measured, double limit, bool at_least) {
    return goal(limit, at_least, false, {1, measured}, {1, 1}).reached();
  };
  EXPECT_TRUE(reached(0.62, 0.6, false));
  EXPECT_FALSE(reached(0.64, 0.6, false));
  EXPECT_TRUE(reached(0.1, 0.6, false));
  EXPECT_TRUE(reached(1.75, 1.8, true));
  EXPECT_FALSE(reached(1.7, 1.8, true));
  EXPECT_TRUE(reached(5, 1.8, true));
}

TEST(InferRates, HaveMeanDeviationAndTheMedianOfTheirTurnsRatios) {
  const InferRates ours{{1, 2, 6}}, theirs{{2, 1, 2}};
  EXPECT_DOUBLE_EQ(ours.mean(), 3);
  EXPECT_DOUBLE_EQ(ours.deviation(), std::sqrt(7.0));  // (4 + 1 + 9) / 2
  EXPECT_DOUBLE_EQ(ours.over(theirs), 2);              // of 0.5, 2 and 3
  EXPECT_EQ(InferRates{{5}}.deviation(), 0);
}

TEST(InferCases, AreNamedAsLlamaBenchDoes) {
  EXPECT_EQ((InferCase{true, 512, 0}.name()), "pp512");
  EXPECT_EQ((InferCase{false, 128, 4096}.name()), "tg128 @ 4096");
}

TEST(AttentionCases, WithoutAShapeShortRowsAndALongOneAreMeasured) {
  std::vector<std::string> sizes;
  for (const AttentionCase& one : attention_cases(""))
    if (one.mechanism == "mha")
      sizes.push_back(c10::str(one.size.B, "x", one.size.T, "x", one.size.H, "x", one.size.D));
  EXPECT_EQ(sizes, (std::vector<std::string>{"4x128x8x64", "1x512x8x64"}));
}

// The rival of plain attention sees what a causal model sees: of one query every key.
TEST(Passes, PlainAttentionOfTheRivalIsCausalAndOfOneQueryWhole) {
  for (const auto& [T, S] : {std::pair<int64_t, int64_t>{7, 7}, {1, 7}}) {
    Arguments a = testing::arguments({.T = T, .S = S, .D = 8, .E = 8}, {}, at::kFloat);
    a.causal = true;
    EXPECT_LE(testing::relative_error(run_sdpa(a), run_definition(a)), 1e-5) << T;
  }
}

}  // namespace
}  // namespace motet
