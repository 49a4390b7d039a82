// Verdicts of worked examples, and how often each word falls over simulated experiments.
#include "motet/experiments/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using W = VerdictWord;
using testing::message_of;

Evidence evidence(const Claim& claim, const ArmNumbers& measured, size_t seeds = 6) {
  return {.claims = {claim}, .controls = {}, .metrics = {{"loss", measured}}, .seeds = seeds};
}

Claim less(std::vector<std::string> arms, double margin = 0) {
  return {.says = "less", .metric = "loss", .kind = ClaimKind::less, .arms = std::move(arms), .margin = margin};
}
Claim equal(std::vector<std::string> arms, double margin) {
  return {.says = "equal", .metric = "loss", .kind = ClaimKind::equal, .arms = std::move(arms), .margin = margin};
}

const ArmNumbers kThree{{"mha", {3.00, 3.10, 3.05, 3.02, 3.08, 3.04}},
                        {"dcmha", {2.90, 2.99, 2.96, 2.93, 2.97, 2.94}},
                        {"static", {2.94, 3.05, 2.97, 2.98, 3.00, 3.00}},
                        {"same", {3.001, 3.099, 3.052, 3.018, 3.081, 3.041}}};

TEST(Verdict, AnOrderIsConfirmedContradictedOrTooSmall) {
  const auto word = [](const Claim& claim) { return decide(evidence(claim, kThree)).at(0).word; };
  EXPECT_EQ(word(less({"dcmha", "mha"})), W::confirmed);
  EXPECT_EQ(word(less({"mha", "dcmha"})), W::contradicted);
  EXPECT_EQ(word(less({"dcmha", "static", "mha"})), W::confirmed);
  EXPECT_EQ(word(less({"static", "dcmha", "mha"})), W::contradicted) << "one comparison has the other sign";
  EXPECT_EQ(word(less({"same", "mha"})), W::undecided) << "no margin was declared";
  EXPECT_EQ(word(less({"same", "mha"}, 0.01)), W::no_effect);
  EXPECT_EQ(word(less({"dcmha", "same", "mha"}, 0.01)), W::no_effect) << "as weak as its weakest comparison";
  EXPECT_EQ(word(less({"dcmha", "mha"}, 0.2)), W::no_effect) << "smaller than what counts";
}

TEST(Verdict, EqualityWantsBothTests) {
  const auto word = [](const Claim& claim) { return decide(evidence(claim, kThree)).at(0).word; };
  EXPECT_EQ(word(equal({"mha", "same"}, 0.01)), W::confirmed);
  EXPECT_EQ(word(equal({"mha", "same"}, 0.0005)), W::undecided);
  EXPECT_EQ(word(equal({"mha", "dcmha"}, 0.01)), W::contradicted);
  EXPECT_EQ(word(equal({"mha", "same", "dcmha"}, 0.01)), W::contradicted);
}

TEST(Verdict, ATrendIsThatOfEachSeed) {
  ArmNumbers widths;
  for (size_t seed = 0; seed < 6; ++seed)
    for (const auto& [arm, loss] : std::map<std::string, double>{{"d2", 3.0}, {"d4", 2.9}, {"d16", 2.8}})
      widths[arm].push_back(loss + 0.3 * static_cast<double>(seed) +
                            0.01 * std::sin(7.0 * static_cast<double>(seed) + loss));
  Claim claim{.says = "falls", .metric = "loss", .kind = ClaimKind::falls, .arms = {"d2", "d4", "d16"}};
  EXPECT_EQ(decide(evidence(claim, widths)).at(0).word, W::confirmed);
  EXPECT_NEAR(decide(evidence(claim, widths)).at(0).findings.at(0).difference.mean, -0.2, 0.02);
  claim.kind = ClaimKind::rises;
  EXPECT_EQ(decide(evidence(claim, widths)).at(0).word, W::contradicted);
  claim.places = {1, 2, 4};  // log2 of the widths: the change is of the fitted line from its first place to its last
  EXPECT_NEAR(decide(evidence(claim, widths)).at(0).findings.at(0).difference.mean, -0.2 * 27 / 28, 0.02);
  claim.margin = 0.5;
  EXPECT_EQ(decide(evidence(claim, widths)).at(0).word, W::no_effect);
}

TEST(Verdict, ALimitIsOneSampleAndNumbersWithoutNoiseNeedNoTest) {
  Claim above{.says = "fast", .metric = "loss", .kind = ClaimKind::above, .arms = {"dcmha"}, .limit = 0.745};
  const ArmNumbers ratios{{"dcmha", {0.90, 0.89, 0.91, 0.90}}, {"slow", {0.744, 0.749, 0.738, 0.75}}};
  const auto word = [&](const Claim& claim, size_t seeds = 4) {
    return decide(evidence(claim, ratios, seeds)).at(0).word;
  };
  EXPECT_EQ(word(above), W::confirmed);
  EXPECT_EQ(decide(evidence(above, ratios, 4)).at(0).findings[0].of, "dcmha - 0.745");
  EXPECT_NEAR(decide(evidence(above, ratios, 4)).at(0).findings[0].difference.mean, 0.155, 1e-12);
  above.arms = {"dcmha", "slow"};
  EXPECT_EQ(word(above), W::undecided);
  above.kind = ClaimKind::below, above.arms = {"dcmha"};
  EXPECT_EQ(word(above), W::contradicted);
  above.test = ClaimTest::exact;
  EXPECT_EQ(word(above, 1), W::contradicted);
  above.kind = ClaimKind::above;
  EXPECT_EQ(word(above, 1), W::confirmed);
  EXPECT_EQ(decide(evidence(above, ratios, 1)).at(0).why, "dcmha - 0.745 = 0.155 (exact)");
  const Claim same{.says = "alike",
                   .metric = "loss",
                   .kind = ClaimKind::equal,
                   .arms = {"dcmha", "slow"},
                   .margin = 1,
                   .test = ClaimTest::exact};
  for (const Claim& exact : {above, same})
    EXPECT_TRUE(std::isnan(decide(evidence(exact, ratios, 4)).at(0).findings[0].p)) << exact.says;
  above.margin = 0.2;
  EXPECT_EQ(word(above, 1), W::no_effect);
  EXPECT_EQ(word(above, 5), W::undecided) << "a cell is missing";
  above.margin = 0, above.arms = {"slow"};
  EXPECT_EQ(word(above), W::undecided) << "exact wants every seed on one side";
}

TEST(Verdict, MissingSeedsLeaveItOpen) {
  ArmNumbers some = kThree;
  some["mha"][3] = NAN;
  const Verdict open = decide(evidence(less({"dcmha", "mha"}), some)).at(0);
  EXPECT_EQ(open.word, W::undecided);
  EXPECT_EQ(open.why, "dcmha - mha: 5 of 6 seeds");
  some["mha"] = {3.0};
  EXPECT_EQ(decide(evidence(less({"dcmha", "mha"}), some)).at(0).word, W::undecided);
  some["mha"] = {};
  EXPECT_EQ(decide(evidence(less({"dcmha", "mha"}), some)).at(0).word, W::undecided);
}

TEST(Verdict, AFailedControlVoidsEveryClaim) {
  Evidence all = evidence(less({"dcmha", "mha"}), kThree);
  all.controls = {{.name = "learns", .arm = "mha", .metric = "loss", .below = true, .limit = 3.1}};
  EXPECT_EQ(decide(all).at(0).word, W::confirmed);
  all.controls.push_back({.name = "chance", .arm = "same", .metric = "loss", .below = false, .limit = 4});
  EXPECT_EQ(decide(all).at(0).word, W::control_failed);
  EXPECT_EQ(decide(all).at(0).why, "the control chance failed: loss of same is 3.049, want above 4");
  all.metrics["loss"]["same"][0] = NAN;
  EXPECT_EQ(decide(all).at(0).word, W::undecided) << "a control that is not done has not failed";
}

TEST(Verdict, AllComparisonsOfAnExperimentAreCorrectedTogether) {
  const ArmNumbers weak{{"a", {1, 2, 3, 4, 5, 6}}, {"b", {1.2, 2.9, 3.1, 4.8, 5.1, 6.9}}};
  Evidence one = evidence(less({"a", "b"}), weak);
  EXPECT_EQ(decide(one).at(0).word, W::confirmed);
  for (int i = 0; i < 4; ++i) one.claims.push_back(one.claims[0]);
  EXPECT_EQ(decide(one).at(0).word, W::undecided);
  EXPECT_GT(decide(one).at(0).findings[0].p, 0.05);
}

TEST(Verdict, AComparisonWithoutNumbersCounts) {
  ArmNumbers some{
      {"a", {1, 2, 3, 4, 5, 6}}, {"b", {1.2, 2.9, 3.1, 4.8, 5.1, 6.9}}, {"c", {NAN, NAN, NAN, NAN, NAN, NAN}}};
  Evidence all = evidence(less({"a", "b"}), some);
  const double alone = decide(all).at(0).findings[0].p;
  all.claims.push_back(less({"a", "c"}));
  EXPECT_NEAR(decide(all).at(0).findings[0].p, 2 * alone, 1e-12)
      << "that an arm did not end makes no other claim easier";
}

TEST(Verdict, SignFlipsAreExact) {
  Claim jumps{.says = "solves",
              .metric = "loss",
              .kind = ClaimKind::less,
              .arms = {"mha", "dcmha"},
              .test = ClaimTest::sign_flip};
  const ArmNumbers solved{{"mha", {0.3, 0.4, 0.31, 0.35, 0.33, 0.3}}, {"dcmha", {1, 1, 0.99, 1, 0.4, 1}}};
  const Verdict six = decide(evidence(jumps, solved)).at(0);
  EXPECT_EQ(six.findings[0].p, 2.0 / 64);
  EXPECT_EQ(six.word, W::confirmed);
  EXPECT_EQ(decide(evidence(jumps, solved, 5)).at(0).word, W::undecided) << "five seeds cannot reach 0.05";
}

TEST(Verdict, WhatIsNotThereIsNamed) {
  EXPECT_EQ(message_of<Error>([] { decide(evidence(less({"dcmha", "mqa"}), kThree)); }),
            "there is no arm 'mqa' with a 'loss'");
  EXPECT_EQ(message_of<Error>([] { decide(evidence(less({"dcmha"}), kThree)); }),
            "the claim 'less' has 1 arms, want at least 2");
  Claim other = less({"dcmha", "mha"});
  other.metric = "accuracy";
  EXPECT_EQ(message_of<Error>([&] { decide(evidence(other, kThree)); }), "there are no numbers of 'accuracy'");
}

// Of many experiments of two or three arms with noise of 1: how often the word is `word`.
double share(W word, const Claim& claim, const std::vector<double>& means, size_t seeds, bool jumps = false) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  constexpr int kExperiments = 3000;
  int found = 0;
  for (int i = 0; i < kExperiments; ++i) {
    ArmNumbers measured;
    for (size_t seed = 0; seed < seeds; ++seed) {
      const double common = 3 * normal(random);  // what pairs share
      for (size_t arm = 0; arm < means.size(); ++arm) {
        const double noise = normal(random) / std::sqrt(2);
        measured[claim.arms[arm]].push_back(means[arm] + (jumps ? std::round(noise) : common + noise));
      }
    }
    found += decide(evidence(claim, measured, seeds)).at(0).word == word;
  }
  return static_cast<double>(found) / kExperiments;
}

TEST(VerdictRates, ConfirmedFallsAtMostOnceInTwentyWithoutAnEffect) {
  for (const size_t seeds : {3, 6, 12}) {
    EXPECT_LE(share(W::confirmed, less({"a", "b"}), {0, 0}, seeds), 0.05) << seeds;
    EXPECT_LE(share(W::contradicted, less({"a", "b"}), {0, 0}, seeds), 0.05) << seeds;
    EXPECT_LE(share(W::confirmed, less({"a", "b", "c"}), {0, 0, 0}, seeds), 0.05) << seeds;
    EXPECT_LE(share(W::contradicted, less({"a", "b", "c"}), {0, 0, 0}, seeds), 0.05) << seeds;
    Claim trend = less({"a", "b", "c"});
    trend.kind = ClaimKind::falls;
    EXPECT_LE(share(W::confirmed, trend, {0, 0, 0}, seeds), 0.05) << seeds;
  }
  Claim flips = less({"a", "b"});
  flips.test = ClaimTest::sign_flip;
  EXPECT_LE(share(W::confirmed, flips, {0, 0}, 8, true), 0.05);
  // Without an effect that is as large as the margin, equality is confirmed; at the margin at most once in twenty.
  EXPECT_LE(share(W::confirmed, equal({"a", "b"}, 1), {0, 1}, 8), 0.055);
  EXPECT_GE(share(W::confirmed, equal({"a", "b"}, 1), {0, 0}, 16), 0.9);
}

TEST(VerdictRates, NoEffectIsRareWhereTheEffectIsAsStated) {
  for (const size_t seeds : {6, 12}) {
    EXPECT_LE(share(W::no_effect, less({"a", "b"}, 1), {0, 1}, seeds), 0.2) << seeds;
    EXPECT_LE(share(W::no_effect, less({"a", "b", "c"}, 1), {0, 1, 2}, seeds), 0.2) << seeds;
  }
  EXPECT_GE(share(W::no_effect, less({"a", "b"}, 1), {0, 0}, 16), 0.9) << "and is found where there is none";
  EXPECT_GE(share(W::confirmed, less({"a", "b"}), {0, 1.43}, 6), 0.75) << "80 % power at 1.43 deviations";
}

}  // namespace
}  // namespace motet
