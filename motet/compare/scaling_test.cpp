// Laws, intervals and compute factors against scipy's, which scripts/golden_scaling.py recorded.
#include "motet/compare/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "motet/compare/compare.h"
#include "motet/compare/report.h"
#include "motet/compare/table.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

using Numbers = std::vector<double>;

json recorded(const char* part) { return read_json("tests/golden/scaling.json").at(part); }

TEST(PowerLaw, IsThatOfScipy) {
  for (const json& one : recorded("laws")) {
    const PowerLaw law = fit_power_law(one["costs"].get<Numbers>(), one["losses"].get<Numbers>());
    const double exponent = one["exponent"], factor = one["factor"], floor = one["floor"];
    EXPECT_NEAR(law.exponent, exponent, 1e-5 * exponent) << one;
    EXPECT_NEAR(law.factor, factor, 1e-3 * factor) << one;  // at a cost of 1, far from all points
    EXPECT_NEAR(law.floor, floor, 1e-5) << one;
    for (const double cost : one["costs"]) EXPECT_NEAR(law.cost_of(law.at(cost)), cost, 1e-6 * cost);
  }
}

TEST(PowerLaw, WhatHasNoLawSaysSo) {
  EXPECT_TRUE(std::isnan(fit_power_law({1e9}, {2}).exponent));
  EXPECT_TRUE(std::isnan(fit_power_law({1e9, 1e9}, {2, 3}).exponent));
  EXPECT_TRUE(std::isnan(fit_power_law({1e9, 2e9}, {2, 3}).cost_of(2))) << "a loss that rises";
  const PowerLaw floored{.floor = 1.5, .factor = 10, .exponent = 0.5};
  EXPECT_EQ(floored.cost_of(1.5), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(floored.cost_of(2.5), 100, 1e-9);
}

// Arms of one token a step, so that FLOPs are 3 times those of a token.
std::vector<Comparison> made_of(const Numbers& flops, const Numbers& other_flops, const std::vector<Numbers>& plain,
                                const std::vector<Numbers>& other) {
  std::vector<Comparison> all;
  for (size_t i = 0; i < flops.size(); ++i) {
    Comparison one{.size = text("size", i)};
    one.arms = {{.arm = {"mha", {}}, .losses = plain[i]}, {.arm = {"dcmha", {}}, .losses = other[i]}};
    one.arms[0].cost.flops_per_token = flops[i] / 3, one.arms[1].cost.flops_per_token = other_flops[i] / 3;
    for (ArmResult& arm : one.arms) arm.cost.parameters = static_cast<int64_t>(1000 * (i + 1));
    all.push_back(one);
  }
  return all;
}

RunConfig one_token() {
  RunConfig run;
  run.train.steps = run.train.context = run.train.batch_size = 1;
  return run;
}

TEST(Scaling, ComputeFactorsAreThoseOfScipy) {
  for (const json& one : recorded("factors")) {
    const auto all = made_of(one["flops"], one["other_flops"], one["plain"], one["other"]);
    const std::vector<Scaling> laws = scaling(all, one_token());
    ASSERT_EQ(laws.size(), 2u);
    EXPECT_NEAR(laws[1].factor, one["factor"].get<double>(), 1e-5);
    EXPECT_NEAR(laws[1].interval.low, one["interval"][0].get<double>(), 1e-4);
    EXPECT_NEAR(laws[1].interval.high, one["interval"][1].get<double>(), 1e-4);
    EXPECT_EQ(laws[0].factor, 1);
    EXPECT_TRUE(laws[0].factors.empty() && std::isnan(laws[0].interval.low));
    EXPECT_EQ(laws[1].flops, one["other_flops"].get<Numbers>());
    const json record = scaling_record(laws);
    EXPECT_EQ(record[1]["compute_factor"], laws[1].factor);
    EXPECT_EQ(record[1]["sizes"][1]["compute_factor"], laws[1].factors[1]);
    EXPECT_EQ(record[1]["sizes"][1]["parameters"], 2000);
    EXPECT_NE(scaling_summary(laws, "mha")
                  .find(text("For the loss of dcmha, mha needs ", fixed(laws[1].factor, 3),
                             " times the training FLOPs (95 % interval ")),
              std::string::npos);
  }
}

// Each loss has luck of its seed, which both contenders have, and of its own.
TEST(Scaling, OfThreeSeedsTheIntervalHoldsTheFactorInNineteenOfTwentyCases) {
  const Numbers flops = {1e11, 2.5e11, 6.25e11};
  const double factor = std::pow(30 / 29.5, 10);
  std::mt19937_64 random(1);
  std::normal_distribution<double> luck(0, 0.02), own(0, 0.004);
  constexpr int kTrials = 2000;
  int held = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<Numbers> plain(3, Numbers(3)), other = plain;
    for (size_t seed = 0; seed < 3; ++seed) {
      const double shared = luck(random);
      for (size_t i = 0; i < 3; ++i) {
        plain[i][seed] = 30 * std::pow(flops[i], -0.1) + shared + own(random);
        other[i][seed] = 29.5 * std::pow(flops[i], -0.1) + shared + own(random);
      }
    }
    const Interval found = scaling(made_of(flops, flops, plain, other), one_token())[1].interval;
    held += found.low <= factor && factor <= found.high;
  }
  EXPECT_GT(held, 0.92 * kTrials);
  EXPECT_LT(held, 0.98 * kTrials);
}

TEST(Scaling, OnlySeedsThatBothHaveAreCompared) {
  const Numbers flops = {1e9, 2e9};
  const auto at_once = [&](const std::vector<Numbers>& plain, const std::vector<Numbers>& other) {
    return scaling(made_of(flops, flops, plain, other), one_token())[1];
  };
  const Scaling both = at_once({{4}, {3.8}}, {{4}, {3.8}});
  const Scaling stopped = at_once({{4, 4.5}, {3.8, 4.3}}, {{4, NAN}, {3.8, NAN}});
  EXPECT_NEAR(both.factor, 1, 1e-9);
  EXPECT_EQ(stopped.factor, both.factor) << "the second seed is of one of them alone";
  EXPECT_EQ(stopped.by_flops.exponent, both.by_flops.exponent);
  EXPECT_TRUE(std::isnan(stopped.interval.low)) << "of one seed";
  const Scaling apart = at_once({{4, NAN}, {3.8, NAN}}, {{NAN, 4}, {NAN, 3.8}});
  EXPECT_TRUE(std::isnan(apart.factor) && apart.factors.empty() && apart.sizes.empty());
}

TEST(Scaling, RunsThatDidNotEndAreLeftOut) {
  const auto all = made_of({1e9, 2e9, 4e9}, {1e9, 2e9, 4e9}, {{4, 4.1, 4.2, 9}, {3.9, 3.9, 4, NAN}, {3.7, 3.7, 3.7, 9}},
                           {{3.9, 3.9, 3.9, 9}, {3.8, 3.8, 3.8, 9}, {}});
  const std::vector<Scaling> laws = scaling(all, one_token());
  EXPECT_EQ(laws[0].sizes.size(), 3u);
  EXPECT_EQ(laws[1].sizes, (std::vector<std::string>{"size0", "size1"}));
  EXPECT_FALSE(std::isnan(laws[1].interval.low)) << "three seeds have ended everywhere";
  const json rows = json::parse(render(scaling_table(laws), TableFormat::json));
  EXPECT_EQ(rows[1]["sizes"], 2);
  EXPECT_TRUE(rows[0]["floor"].is_null());
  EXPECT_EQ(rows[1]["interval"][0], laws[1].interval.low);
}

TEST(Scaling, ABaselineThatDoesNotLearnFromItsSizeGivesNoFactor) {
  const std::vector<Scaling> laws = scaling(made_of({1e9, 2e9}, {1e9, 2e9}, {{3}, {4}}, {{3}, {2}}), one_token());
  EXPECT_TRUE(std::isnan(laws[1].factor));
  EXPECT_TRUE(scaling_record(laws)[1]["compute_factor"].dump() == "null");
  EXPECT_EQ(scaling_summary(laws, "mha"), "No compute factors: the loss of mha does not fall over these sizes.");
}

TEST(Scaling, OneFinishedSizeIsNamedAsThat) {
  const std::vector<Scaling> laws = scaling(made_of({1e9, 2e9}, {1e9, 2e9}, {{3}, {NAN}}, {{2.9}, {NAN}}), one_token());
  EXPECT_EQ(scaling_summary(laws, "mha"), "No compute factors: one size of mha has finished, want two.");
  EXPECT_TRUE(std::isnan(laws[0].factor)) << "nor is its own 1";
}

TEST(Scaling, WithoutACommonSeedThereIsNoFactorAndItIsSaid) {
  const auto factors_of = [](const std::vector<Numbers>& plain) {
    return scaling_summary(scaling(made_of({1e9, 2e9}, {1e9, 2e9}, plain, {{NAN, 4}, {NAN, 3.8}}), one_token()), "mha");
  };
  EXPECT_EQ(factors_of({{4, NAN}, {3.8, NAN}}),
            "No compute factor of dcmha: no seed of it and of mha has ended at every size.");
  EXPECT_EQ(factors_of({{4, NAN}, {NAN, 3.8}}), "No compute factors: no seed of mha has ended at every size.");
}

TEST(Sizes, AreReadAndApplied) {
  const std::vector<ModelSize> sizes = parse_sizes("32,64x3,128x4x16");
  const RunConfig base = small_run({{"model.attention.num_heads", "4"}});
  const RunConfig a = sized(base, sizes[0]), c = sized(base, sizes[2]);
  EXPECT_EQ(a.model.hidden_size, 32);
  EXPECT_EQ(a.model.num_layers, base.model.num_layers);
  EXPECT_EQ(a.attention_given["num_heads"], base.attention_given["num_heads"]);
  EXPECT_EQ(sized(base, sizes[1]).model.num_layers, 3);
  EXPECT_EQ(c.model.num_layers, 4);
  EXPECT_EQ(c.attention_given["num_heads"], 16);
  const std::pair<const char*, const char*> mistakes[] = {
      {"64", "'64' is one size, want at least 2"},
      {"64,64", "64 stands there twice"},
      {"64,big", "--sizes: big: model.hidden_size: 'big' is not"},
      {"64,32x0", "--sizes: 32x0: model.num_layers: '0' is below 1"},
      {"64,1x2x3x4", "want WIDTH, WIDTHxLAYERS or"}};
  for (const auto& [given, message] : mistakes) {
    const std::string got = message_of<UsageError>([&] { parse_sizes(given); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  }
  const std::string wide =
      message_of<UsageError>([&] { sized(small_run({{"model.intermediate_size", "64"}}), sizes[0]); });
  EXPECT_EQ(wide, "--sizes: model.intermediate_size is 64, want 0: the feed-forward grows with the width");
}

TEST(Sizes, OneThatIsWrittenInTwoWaysIsRefused) {
  const RunConfig run = small_run({{"model.num_layers", "1"}, {"model.attention.num_heads", "4"}});
  const TextData data = load_text_data(run);
  const auto said = [&](const RunConfig& own, const char* sizes) {
    const CompareOptions options{.arms = parse_arms("mha", own.attention_given), .sizes = parse_sizes(sizes)};
    try {
      planned_comparisons(own, data, options);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said(run, "16,16x1"), "--sizes: 16 and 16x1 are one size, want each once");
  EXPECT_EQ(said(run, "32,16x1,16x1x4"), "--sizes: 16x1 and 16x1x4 are one size, want each once");
  EXPECT_EQ(said(run, "16,016"), "--sizes: 16 and 016 are one size, want each once");
  EXPECT_EQ(said(run, "16,16x2,16x1x2,32"), "");
  EXPECT_NE(said(small_run({{"model.attention.num_heads", "four"}}), "16,32").find("'four' is not an integer"),
            std::string::npos);
  const RunConfig usual = small_run({{"model.num_layers", "1"}});  // 4 heads, which nobody gave
  EXPECT_EQ(said(usual, "16,16x1x4"), "--sizes: 16 and 16x1x4 are one size, want each once");
}

TEST(Sizes, EachIsAComparisonOfItsOwn) {
  const TemporaryFolder folder, alone_folder;
  const RunConfig run = small_run({{"train.steps", "6"}, {"train.final_eval_windows", "20"}});
  const TextData data = load_text_data(run);
  CompareOptions options{.arms = parse_arms("mha,dcmha:num_heads=2", json::object()),
                         .seeds = 2,
                         .jobs = 2,
                         .threads = 2,
                         .folder = folder.path(),
                         .sizes = parse_sizes("16x1x4,32x2x8")};
  std::vector<Comparison> all = planned_comparisons(run, data, options);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].arms[0].config.attention.at("num_heads"), 8);
  EXPECT_EQ(all[1].arms[1].config.attention.at("num_heads"), 2) << "its own";
  EXPECT_NEAR(static_cast<double>(all[1].arms[1].cost.parameters), static_cast<double>(all[1].arms[0].cost.parameters),
              3 * 32 * 2);
  run_comparisons(all, run, data, options);
  options.folder = alone_folder.path(), options.sizes.clear();
  const RunConfig large = sized(run, parse_sizes("16x1x4,32x2x8")[1]);
  options.arms = parse_arms("mha,dcmha:num_heads=2", large.attention_given);
  std::vector<Comparison> alone = planned_comparisons(large, data, options);
  run_comparisons(alone, large, data, options);
  for (size_t i = 0; i < 2; ++i)
    for (size_t seed = 0; seed < 2; ++seed)
      EXPECT_NEAR(all[1].arms[i].losses[seed], alone[0].arms[i].losses[seed], 1e-5);
  const json results = read_json((folder.path() / "results.json").string());
  EXPECT_EQ(results["runs"].size(), 8u);
  EXPECT_EQ(results["comparison"]["sizes"], json({"16x1x4", "32x2x8"}));
  const ModelCost& cost = all[1].arms[1].cost;
  EXPECT_EQ(results["scaling"][1]["sizes"][1]["training_flops"], 3 * cost.flops_per_token * 6 * 64);
  EXPECT_EQ(results["scaling"][1]["sizes"][1]["parameters"], cost.parameters);
  const json rows = json::parse(render(comparison_table(all, run, data, Match::parameters), TableFormat::json));
  EXPECT_EQ(rows[2]["size"], "32x2x8");
  EXPECT_EQ(rows[3]["validation_loss"], mean(all[1].arms[1].losses));
  EXPECT_EQ(rows[3]["difference"], all[1].arms[1].difference.mean);
  EXPECT_EQ(pictured_size(all), 1u);
  const ReportData report = comparison_report(all, run, data, {"motet compare", "a", {"x", "y"}, Match::parameters});
  ASSERT_EQ(report.scaling_points.size(), 4u);
  EXPECT_EQ(report.scaling_points[3].size, "32x2x8");
  EXPECT_EQ(report.scaling_points[3].costs[1], static_cast<double>(cost.parameters));
  ASSERT_EQ(report.scaling_lines.size(), 4u);
  EXPECT_NEAR(report.scaling_lines[2].loss.front(), mean(all[0].arms[1].losses), 1e-6) << "a law through two points";
  EXPECT_EQ(report.scaling_table.rows.size(), 2u);
  EXPECT_EQ(report.curves.size(), 4u);
}

}  // namespace
}  // namespace motet
