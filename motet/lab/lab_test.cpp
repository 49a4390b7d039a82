#include "motet/lab/lab.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace motet
