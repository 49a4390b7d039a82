#include "motet/compare/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/compare/summary.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

RunConfig small_run() {
  json request{{"set", json::array()}};
  return read_run_config(request, {{"model", {{"hidden_size", 32}}},
                                   {"train", {{"context", 16}, {"batch_size", 4}, {"steps", 6}, {"eval_windows", 8}}}});
}

TEST(Comparison, WithoutABaselineNothingIsBetterOrWorse) {
  Comparison all;
  all.arms = {{.arm = {"mha", {}}, .failure = "seed 1, step 1: the loss is nan"},
              {.arm = {"dcmha", {}}, .losses = {1.0, 1.1}},
              {.arm = {"coca", {}}, .losses = {2.0, 2.1}}};
  judge(all);
  EXPECT_EQ(verdict(all, all.arms[0]), "diverged");
  EXPECT_EQ(verdict(all, all.arms[1]), "no baseline");
  EXPECT_EQ(
      comparison_summary(all),
      "dcmha has the lowest validation loss, 1.0500 nats a token. mha diverged: seed 1, step 1: the loss is nan.");
  all.arms.resize(1);
  EXPECT_EQ(all.lowest(), nullptr);
  EXPECT_EQ(comparison_summary(all), "mha diverged: seed 1, step 1: the loss is nan.");
}

TEST(Comparison, SummaryNamesTheBaselineThatIsThere) {
  Comparison all;
  all.arms = {{.arm = {"dcmha", {}}, .losses = {1.0}}};
  EXPECT_EQ(comparison_summary(all),
            "dcmha has a validation loss of 1.0000 nats a token; there is nothing to compare with.");
  all.arms.push_back({.arm = {"coca", {}}, .losses = {2.0}});
  EXPECT_NE(comparison_summary(all).find("no other mechanism beats dcmha here"), std::string::npos);
}

TEST(Comparison, ABudgetOfMinutesShowsTheStepsOfEachArm) {
  RunConfig run = small_run();
  run.train.steps = 0, run.train.minutes = 2.0;
  Comparison all;
  for (const auto& [label, steps] : {std::pair("mha", 10), std::pair("dcmha", 4)}) {
    const Arm arm = parse_arms(label, json::object())[0];
    TrainResult result;
    result.steps.resize(static_cast<size_t>(steps));
    all.arms.push_back({.arm = arm, .config = arm_config(run, arm, 40), .runs = {result}, .losses = {2.0}});
  }
  const Table table = comparison_table({all}, run, TextData{}, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[0]["steps"], 10);
  EXPECT_EQ(rows[0]["tokens"], 10 * 4 * 16);
  EXPECT_EQ(rows[1]["steps"], 4);
  EXPECT_EQ(table.note.find("10 steps"), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("2 minutes of training steps for each model"), std::string::npos) << table.note;
}

// Losses of mha and of one other arm, judged.
Comparison judged(std::vector<double> baseline, std::vector<double> other, double margin = 0.01) {
  Comparison all;
  all.margin = margin;
  all.arms = {{.arm = {"mha", {}}, .losses = std::move(baseline)}, {.arm = {"dcmha", {}}, .losses = std::move(other)}};
  for (ArmResult& arm : all.arms) arm.runs.resize(arm.losses.size());
  judge(all);
  return all;
}

std::string verdict_of(const Comparison& all) { return verdict(all, all.arms[1]); }

TEST(Comparison, OneSeedGivesNoVerdict) {
  const Comparison all = judged({2.0}, {1.0});
  EXPECT_EQ(verdict_of(all), "one seed");
  EXPECT_EQ(
      comparison_summary(all),
      "dcmha has the lowest validation loss, 1.0000 nats a token, 1.0000 below mha. One seed gives no verdict: the "
      "difference may be noise.");
}

TEST(Comparison, ALeadThatNothingTestedIsSaidToBeThat) {
  Comparison all = judged({2, 2.01, 2.02}, {1, 1, 1});
  all.arms.push_back(all.arms[1]);
  all.arms[2].arm.label = "coca";
  judge(all);
  EXPECT_TRUE(
      comparison_summary(all).ends_with(": better than mha; what lies between it and the others is not tested."))
      << comparison_summary(all);
}

TEST(Comparison, TheLowestIsSoOfTheSeedsThatBothHave) {
  const Comparison interrupted = judged({2.30, 2.40}, {2.32, NAN});
  EXPECT_EQ(interrupted.lowest(), &interrupted.arms[0]);
  EXPECT_NE(comparison_summary(interrupted).find("mha has the lowest validation loss, 2.3500 nats a token; no other"),
            std::string::npos)
      << comparison_summary(interrupted);
  const Comparison lower = judged({2.30, NAN}, {2.28, 2.40});
  EXPECT_EQ(lower.lowest(), &lower.arms[1]);
  const Comparison apart = judged({NAN, 2.40}, {2.32, NAN});
  EXPECT_EQ(apart.lowest(), &apart.arms[1]) << "without a pair, by mean loss";
}

TEST(Comparison, FewSeedsGiveAVerdictBeyondTheMarginAlone) {
  // Differences -1, -1.01, -1.02 and their mirror.
  const Comparison better = judged({2, 2.01, 2.02}, {1, 1, 1}), worse = judged({1, 1, 1}, {2, 2.01, 2.02});
  EXPECT_EQ(verdict_of(better), "better");
  EXPECT_EQ(verdict_of(worse), "worse");
  EXPECT_LT(better.arms[1].difference.mean, 0);
  EXPECT_NE(
      comparison_summary(better).find("1.0100 below mha (95 % interval 0.9852 to 1.0348, p = 0.000): better than mha."),
      std::string::npos)
      << comparison_summary(better);
  EXPECT_NE(comparison_summary(worse).find("mha has the lowest validation loss, 1.0000 nats a token; no other"),
            std::string::npos);
  // The interval of -1 +- .0248 lies beyond .98, not beyond .99.
  EXPECT_EQ(verdict_of(judged({2, 2.01, 2.02}, {1, 1, 1}, 0.98)), "better");
  EXPECT_EQ(verdict_of(judged({2, 2.01, 2.02}, {1, 1, 1}, 0.99)), "n too small");
  EXPECT_EQ(verdict_of(judged({1, 1, 1}, {2, 2.01, 2.02}, 0.98)), "worse");
  EXPECT_EQ(verdict_of(judged({1, 1, 1}, {2, 2.01, 2.02}, 0.99)), "n too small");
  const Comparison noise = judged({2.0, 2.1, 2.2}, {1.9, 2.15, 2.1});
  EXPECT_EQ(verdict_of(noise), "n too small");
  EXPECT_NE(comparison_summary(noise).find("3 seeds give no verdict"), std::string::npos);
}

// p = .013 alone, .09 among seven: a difference of few seeds whose interval lies beyond the margin is not noise.
TEST(Comparison, FewSeedsNeverSayWithinNoise) {
  Comparison all = judged({2, 2.1, 2}, {1.9, 1.98, 1.92});
  ASSERT_EQ(verdict_of(all), "better");
  for (int i = 0; i < 6; ++i) {
    all.arms.push_back({.arm = {text("other", i), {}}, .losses = {2.1, 2.05, 2.0}});
    all.arms.back().runs.resize(3);
  }
  judge(all);
  EXPECT_GT(all.arms[1].p_value, 0.05);
  EXPECT_EQ(verdict_of(all), "n too small");
  EXPECT_NE(comparison_summary(all).find("3 seeds give no verdict."), std::string::npos) << comparison_summary(all);
  all.arms.erase(all.arms.begin() + 1);
  judge(all);
  EXPECT_NE(comparison_summary(all).find("beats mha here. 3 seeds give no verdict on every difference."),
            std::string::npos)
      << comparison_summary(all);
  for (ArmResult& arm : all.arms) arm.losses.resize(1);
  judge(all);
  EXPECT_NE(comparison_summary(all).find("beats mha here. One seed gives no verdict: the differences may be noise."),
            std::string::npos)
      << comparison_summary(all);
}

TEST(Comparison, FromFiveSeedsOnTheCorrectedTestDecides) {
  const std::vector<double> base{2, 2.1, 1.9, 2, 2.05};
  const auto shifted = [&](std::vector<double> by) {
    for (size_t i = 0; i < by.size(); ++i) by[i] += base[i];
    return by;
  };
  EXPECT_EQ(verdict_of(judged(base, shifted({-.004, -.005, -.006, -.005, -.005}))), "better") << "inside of the margin";
  EXPECT_EQ(verdict_of(judged(base, shifted({.004, .005, .006, .005, .005}))), "worse");
  const Comparison noise = judged(base, shifted({-.3, .2, -.1, .25, -.3}));
  EXPECT_EQ(verdict_of(noise), "within noise");
  EXPECT_NE(comparison_summary(noise).find("the difference is within noise"), std::string::npos);
}

// p = .015 alone is .10 among seven.
TEST(Comparison, ManyArmsAreCorrectedFor) {
  Comparison all = judged({2, 2, 2, 2, 2}, {1.93, 1.97, 1.95, 1.99, 1.94});
  ASSERT_EQ(verdict_of(all), "better");
  const double alone = all.arms[1].p_value;
  EXPECT_EQ(alone, all.arms[1].difference.p);
  for (int i = 0; i < 6; ++i) {
    all.arms.push_back({.arm = {text("other", i), {}}, .losses = {2.1, 1.9, 2.05, 1.96, 2.0}});
    all.arms.back().runs.resize(5);
  }
  judge(all);
  EXPECT_NEAR(all.arms[1].p_value, 7 * alone, 1e-12);
  EXPECT_EQ(verdict_of(all), "within noise");
}

TEST(Comparison, TheTableShowsDifferenceIntervalAndP) {
  Comparison all = judged({2, 2.01, 2.02}, {1, 1, 1});
  const RunConfig run = small_run();
  for (ArmResult& arm : all.arms) arm.config = arm_config(run, parse_arms("mha", json::object())[0], 40);
  const Table table = comparison_table({all}, run, TextData{}, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[0]["difference"], 0);
  EXPECT_TRUE(rows[0]["interval"].is_null());
  EXPECT_NEAR(rows[1]["difference"].get<double>(), -1.01, 1e-12);
  EXPECT_NEAR(rows[1]["interval"][0].get<double>(), -1.03484, 1e-5);
  EXPECT_NEAR(rows[1]["interval"][1].get<double>(), -0.98516, 1e-5);
  EXPECT_NEAR(rows[1]["p"].get<double>(), 3.3e-5, 1e-6);
  EXPECT_EQ(rows[1]["verdict"], "better");
  EXPECT_EQ(table.note.find("pairs of heads"), std::string::npos);
  all.arms[1].config = arm_config(run, parse_arms("differential_v1:num_heads=8", json::object())[0], 40);
  EXPECT_NE(comparison_table({all}, run, TextData{}, Match::none)
                .note.find("dcmha has 4 pairs of heads, and its authors use 8 or more."),
            std::string::npos);
  EXPECT_NE(render(table, TableFormat::table).find("-1.0348 to -0.9852"), std::string::npos);
  EXPECT_NE(table.note.find("3 seeds"), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("This shows no verdict but where the 95 % interval lies beyond +-0.01"), std::string::npos);
  EXPECT_NE(table.note.find("Learning rate 0.003 for all, not tuned for any."), std::string::npos) << table.note;
  all.arms[1].arm.train["learning_rate"] = 0.001;
  EXPECT_NE(comparison_table({all}, run, TextData{}, Match::none)
                .note.find("Learning rate 0.001 for dcmha, 0.003 for the others."),
            std::string::npos);
  all.arms[0].arm.train["learning_rate"] = 0.01;
  const std::string note = comparison_table({all}, run, TextData{}, Match::none).note;
  EXPECT_NE(note.find(" Learning rate 0.01 for mha, 0.001 for dcmha."), std::string::npos) << note;
}

TEST(Comparison, WithoutATestThereIsNoCorrectionOfIt) {
  Comparison all = judged({2, 2}, {2.1, 2.3});
  const RunConfig run = small_run();
  for (ArmResult& arm : all.arms) arm.config = arm_config(run, parse_arms("mha", json::object())[0], 40);
  const Table table = comparison_table({all}, run, TextData{}, Match::none);
  EXPECT_NE(table.note.find("Holm's correction for 1 test."), std::string::npos) << table.note;
  all.arms[0].losses.clear(), all.arms[0].failure = "seed 1, step 1: the loss is nan";
  judge(all);
  const std::string note = comparison_table({all}, run, TextData{}, Match::none).note;
  EXPECT_NE(note.find("\n2 seeds; ± is their standard deviation. This shows no verdict"), std::string::npos) << note;
}

TEST(Comparison, WhatAnInterruptedOneHasFinishedIsCompared) {
  Comparison all = judged({2, 2, NAN}, {1, NAN, NAN});
  all.interrupted = true;
  EXPECT_EQ(verdict_of(all), "one seed");
  EXPECT_NE(comparison_summary(all).find("Stopped before all seeds had finished: mha (2 of 3), dcmha (1 of 3)."),
            std::string::npos)
      << comparison_summary(all);
  EXPECT_EQ(verdict_of(judged({2, 2}, {NAN, NAN})), "not finished");
}

}  // namespace
}  // namespace motet
