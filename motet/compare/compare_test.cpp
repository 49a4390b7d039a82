#include "motet/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/compare/present.h"
#include "motet/compare/statistics.h"
#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

TEST(Statistics, TDistributionMatchesTables) {  // two-sided 5 % points
  EXPECT_NEAR(two_sided_t(12.706, 1), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(4.303, 2), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(2.228, 10), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(1.984, 100), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_t(0, 5), 1, 1e-12);
}

TEST(Statistics, PairedTestWorkedExample) {  // differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.4641, 2 degrees of freedom
  EXPECT_NEAR(paired_p_value({2, 4, 6}, {1, 2, 3}), 0.0742, 1e-4);
  EXPECT_TRUE(std::isnan(paired_p_value({1}, {2})));
  EXPECT_EQ(paired_p_value({1, 2}, {1, 2}), 1);
}

TEST(Arms, DefaultIsTheMainSeven) {
  std::vector<std::string> labels;
  for (const Arm& arm : parse_arms("", json::object())) labels.push_back(arm.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"mha", "key_size", "talking_heads", "dcmha", "differential_v1",
                                              "differential_v2", "coca"}));
}

TEST(Arms, OptionsStandBehindColons) {
  const auto arms = parse_arms("mha,dcmha:rank=1:sides=query", {{"num_heads", 8}, {"rank", 4}});
  EXPECT_EQ(arms[1].attention["rank"], "1");
  EXPECT_EQ(arms[1].attention["num_heads"], 8);
  EXPECT_FALSE(arms[0].attention.contains("rank"));
}

TEST(Arms, MistakesAreNamed) {
  const auto says = [](const char* list, json common, const char* message) {
    const std::string got = message_of<UsageError>([&] { parse_arms(list, common); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  says("mha,dcmah", json::object(), "unknown mechanism 'dcmah': nearest is 'dcmha'");
  says("mha,mha", json::object(), "appears twice");
  says("dcmha:rank", json::object(), "want key=value");
  says("mha", {{"num_haeds", 4}}, "num_heads");
  says("mha", {{"mechanism", "dcmha"}}, "--mechanisms instead");
  says("mha,dcmha:mechanism=coca", json::object(), "'mechanism=coca' in 'dcmha:mechanism=coca': the mechanism stands");
}

RunConfig small_run() {
  json request{{"set", json::array()}};
  return read_run_config(request, {{"model", {{"hidden_size", 32}}},
                                   {"train", {{"context", 16}, {"batch_size", 4}, {"steps", 6}, {"eval_windows", 8}}}});
}

TEST(Match, EqualParametersOrFlopsThroughTheFeedForward) {
  const RunConfig run = small_run();
  for (Match match : {Match::parameters, Match::flops}) {
    const auto arms = parse_arms("", json::object());
    const double target = size_of(arm_config(run, arms[0], 40), match);
    for (const Arm& arm : arms) {
      ModelConfig config = arm_config(run, arm, 40);
      match_size(config, match, target);
      EXPECT_NEAR(size_of(config, match) / target, 1, 0.01) << arm.label;
    }
  }
}

TEST(Match, ImpossibleMatchIsRefused) {
  ModelConfig config = arm_config(small_run(), parse_arms("key_size:key_dim=512", json::object())[0], 40);
  EXPECT_NE(message_of<UsageError>([&] { match_size(config, Match::parameters, 20000); }).find("--match none"),
            std::string::npos);
}

TEST(Comparison, TrainsAllArmsAndReports) {
  const TemporaryFolder folder;
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const CompareOptions options{
      .arms = parse_arms("mha,dcmha", json::object()), .seeds = 2, .jobs = 2, .threads = 2, .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  ASSERT_EQ(all.arms[1].losses.size(), 2u);
  EXPECT_EQ(verdict(all, all.arms[0]), "baseline");
  EXPECT_NE(verdict(all, all.arms[1]), "one seed");
  EXPECT_GT(all.arms[1].tokens_per_second, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "models/dcmha-seed2/model.safetensors"));
  const std::string table = render(comparison_table(all, run, data, Match::parameters), TableFormat::csv);
  EXPECT_NE(table.find("mechanism,"), std::string::npos);
  const ReportData report = comparison_report(all, run, data, {"motet compare", "a", {"x", "y"}, Match::parameters});
  EXPECT_EQ(report.curves.size(), 4u);
  EXPECT_EQ(report.curves[0].step.size(), 6u);
  bool before = false, after = false;
  for (const AttentionPicture& p : report.pictures)
    before |= p.kind == "before", after |= p.mechanism == "dcmha" && p.kind == "after";
  EXPECT_TRUE(before && after);
}

TEST(Comparison, AnArmThatDivergesEndsNoOther) {
  const TemporaryFolder folder;
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("mha,differential_v1:lambda_std=10,dcmha", json::object()),
                               .seeds = 2,
                               .match = Match::none,
                               .jobs = 2,
                               .threads = 2,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  EXPECT_EQ(all.arms[0].losses.size(), 2u);
  EXPECT_EQ(all.arms[2].losses.size(), 2u);
  EXPECT_TRUE(all.arms[1].losses.empty());
  EXPECT_EQ(verdict(all, all.arms[1]), "diverged");
  EXPECT_EQ(all.failures().find("differential_v1:lambda_std=10 diverged: seed "), 0u) << all.failures();
  EXPECT_NE(all.failures().find("the loss is "), std::string::npos) << all.failures();
  EXPECT_NE(comparison_summary(all).find(all.failures()), std::string::npos);
  const json rows = json::parse(render(comparison_table(all, run, data, Match::none), TableFormat::json));
  EXPECT_EQ(rows[1]["verdict"], "diverged");
  EXPECT_TRUE(rows[1]["validation_loss"].is_null());
  EXPECT_TRUE(rows[2]["validation_loss"].is_number());
  const ReportData report = comparison_report(all, run, data, {"motet compare", "a", {"x", "", "y"}, Match::none});
  EXPECT_EQ(report.samples.size(), 2u);
  EXPECT_EQ(report.points.size(), 2u);
}

TEST(Comparison, WithoutABaselineNothingIsBetterOrWorse) {
  Comparison all;
  all.arms = {{.arm = {"mha", {}}, .failure = "seed 1, step 1: the loss is nan"},
              {.arm = {"dcmha", {}}, .losses = {1.0, 1.1}},
              {.arm = {"coca", {}}, .losses = {2.0, 2.1}}};
  EXPECT_EQ(verdict(all, all.arms[0]), "diverged");
  EXPECT_EQ(verdict(all, all.arms[1]), "no baseline");
  EXPECT_EQ(
      comparison_summary(all),
      "dcmha has the lowest validation loss, 1.0500 nats a token. mha diverged: seed 1, step 1: the loss is nan.");
  all.arms.resize(1);
  EXPECT_EQ(all.best(), nullptr);
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
  run.train["steps"] = 0, run.train["minutes"] = 2.0;
  Comparison all;
  for (const auto& [label, steps] : {std::pair("mha", 10), std::pair("dcmha", 4)}) {
    const Arm arm = parse_arms(label, json::object())[0];
    TrainResult result;
    result.steps.resize(static_cast<size_t>(steps));
    all.arms.push_back(
        {.arm = arm, .config = arm_config(run, arm, 40), .runs = {result}, .losses = {2.0}, .p_value = NAN});
  }
  const Table table = comparison_table(all, run, TextData{}, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[0]["steps"], 10);
  EXPECT_EQ(rows[0]["tokens"], 10 * 4 * 16);
  EXPECT_EQ(rows[1]["steps"], 4);
  EXPECT_EQ(table.note.find("10 steps"), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("2 minutes of training steps for each model"), std::string::npos) << table.note;
}

// Two arms of one model must show one memory, wherever they stand in the list.
TEST(Comparison, MemoryDoesNotDependOnTheOrderOfTheArms) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train["context"] = 64, run.train["batch_size"] = 16, run.train["steps"] = 1;
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("mha,dcmha,softmax", json::object()),
                               .match = Match::none,
                               .threads = 2,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  if (all.arms[0].peak_bytes == 0) GTEST_SKIP() << "the kernel does not tell";
  const double first = static_cast<double>(all.arms[0].peak_bytes), last = static_cast<double>(all.arms[2].peak_bytes);
  EXPECT_NEAR(first / last, 1, 0.05) << first << " " << last;
}

TEST(Comparison, OneSeedGivesNoVerdict) {
  Comparison all;
  all.arms = {{.arm = {"mha", {}}, .losses = {2.0}}, {.arm = {"dcmha", {}}, .losses = {1.0}}};
  EXPECT_EQ(verdict(all, all.arms[1]), "one seed");
  EXPECT_NE(comparison_summary(all).find("no verdict"), std::string::npos);
}

TEST(Comparison, NoiseIsCalledNoise) {
  Comparison all;
  all.arms = {{.arm = {"mha", {}}, .losses = {2.0, 2.1}},
              {.arm = {"dcmha", {}}, .losses = {1.9, 2.15}, .p_value = 0.7}};
  EXPECT_EQ(verdict(all, all.arms[1]), "within noise");
  EXPECT_NE(comparison_summary(all).find("within noise"), std::string::npos);
}

}  // namespace
}  // namespace motet
