#include "motet/lab/lab.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motet/core/testing.h"

namespace motet {
namespace {

TEST(Lab, TrainingsOfMinutesRunAlone) {
  Experiment experiment;
  experiment.kind = "train";
  experiment.arms = {{.name = "mha", .options = {{"train", {{"tokens", 1000}}}}, .rates = {}}};
  experiment.scales = {{.name = "xs", .seeds = 1, .options = nlohmann::json::object(), .sweep = {}}};
  EXPECT_FALSE(Lab::alone(experiment));
  experiment.arms[0].options["then"]["train"]["minutes"] = 2;
  EXPECT_TRUE(Lab::alone(experiment));
  experiment.arms[0].options = nlohmann::json::object();
  experiment.scales[0].options["train"]["minutes"] = 0.5;
  EXPECT_TRUE(Lab::alone(experiment));
  experiment.kind = "bench";
  experiment.scales[0].options = nlohmann::json::object();
  EXPECT_TRUE(Lab::alone(experiment));
}

TEST(Lab, AMetricIsMeasuredByItsWholeName) {
  const std::vector<std::string> names{"accuracy", "accuracy{...}", "kl"};
  for (const char* metric : {"accuracy", "accuracy{held out}", "accuracy{n=512, seen}", "kl"})
    EXPECT_TRUE(is_measured(metric, names)) << metric;
  for (const char* metric : {"accurac", "accuracy{n=512", "accuracy(n=512)", "kl{a}", "k", ""})
    EXPECT_FALSE(is_measured(metric, names)) << metric;
}

// The projects' experiments: what their claims, controls and rates ask for, and what their cells came to.
TEST(Lab, TheMetricsOfACellAreKnownBeforeItRuns) {
  const testing::TemporaryFolder data;
  std::filesystem::create_directories(data.path() / "books10M");
  Lab lab({.data = data.path()});
  size_t claims = 0, measured = 0;
  for (const Experiment& experiment : read_experiments("experiments")) {
    const ExperimentResults results = read_results(experiment);
    for (const ExperimentScale& scale : experiment.scales)
      for (const ExperimentCell& cell : cells_of(experiment, scale)) {
        const std::vector<std::string> names = lab.metrics(experiment, cell);
        const auto expect = [&](const std::string& metric) {
          EXPECT_TRUE(is_measured(metric, names)) << experiment.id << ", " << cell.arm << ": " << metric;
        };
        if (const auto found = results.cells.find(cell.hash); found != results.cells.end())
          for (const auto& [metric, value] : found->second.metrics) expect(metric), ++measured;
        if (cell.seed > 1) continue;
        for (const Claim& claim : experiment.claims)
          if (std::ranges::find(claim.arms, cell.arm) != claim.arms.end()) expect(claim.metric), ++claims;
        for (const Control& control : experiment.controls)
          if (control.arm == cell.arm) expect(control.metric);
        if (!scale.sweep.factors.empty()) expect(scale.sweep.metric);
      }
  }
  EXPECT_GT(claims, 100u);
  EXPECT_GT(measured, 1000u);
}

TEST(Lab, AMetricThatOptionsDoNotMeasureIsNotAmongThem) {
  Lab lab({});
  Experiment experiment;
  experiment.kind = "train";
  const auto has = [&](const char* metric, nlohmann::json options) {
    options["train"]["steps"] = 1;
    const ExperimentCell cell{.scale = "xs", .arm = "mha", .options = options, .baseline = {}, .hash = {}};
    return is_measured(metric, lab.metrics(experiment, cell));
  };
  const nlohmann::json plain = nlohmann::json::object(), watch{{"watch", true}},
                       lengths{{"lengths", {{"times", {1, 8}}, {"scaling", {"dynamic 4"}}}}},
                       look{{"look", {{"bits", {4}}}}}, recall{{"recall", nlohmann::json::object()}},
                       task{{"data", {{"task", {{"name", "noisy-recall"}}}}}};
  EXPECT_TRUE(has("validation_loss", plain) && has("validation_loss", task));
  EXPECT_FALSE(has("validation_los", plain) || has("validation_loss{1T}", plain));
  EXPECT_TRUE(has("spikes", watch) && !has("spikes", plain));
  EXPECT_TRUE(has("loss{8T, dynamic 4}", lengths) && has("loss{1T}", lengths));
  EXPECT_FALSE(has("loss{8T, dynamic 2}", lengths) || has("loss{4T}", lengths) || has("loss{8T}", plain));
  EXPECT_TRUE(has("rise{4 bits, tensor}", look) && has("logits{top 10}", look) && has("probe{self}", look));
  EXPECT_FALSE(has("rise{4 bits, row}", look) || has("logits{top 4}", look) || has("probe{self}", plain));
  EXPECT_TRUE(has("recalled", recall) && !has("recalled", plain));
  EXPECT_TRUE(has("accuracy{n=512}", task) && has("share{noise}", task) && !has("share{noises}", task));
  EXPECT_FALSE(has("accuracy", plain));
}

}  // namespace
}  // namespace motet
