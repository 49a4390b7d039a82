#include "motet/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/checkpoints/model_folder.h"
#include "motet/compare/report.h"
#include "motet/compare/summary.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/ops/other_device.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

RunConfig small_run() {
  json request{{"set", json::array()}};
  return read_run_config(
      request,
      {{"model", {{"hidden_size", 32}}},
       {"train", {{"context", 16}, {"batch_size", 4}, {"steps", 6}, {"eval_windows", 8}, {"final_eval_windows", 64}}}});
}

Comparison compared(const RunConfig& run, const TextData& data, const CompareOptions& options) {
  std::vector<Comparison> all = planned_comparisons(run, data, options);
  run_comparisons(all, run, data, options);
  return all.front();
}

// What every run must have been: computed here by a trainer of its own from the seeds.
TEST(Comparison, EveryRunIsTheOneOfItsSeeds) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.seed = 3, run.train.data_seed = 11;
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("dcmha,mha,softmax,mha:learning_rate=1e-2", json::object()),
                               .seeds = 2,
                               .match = Match::parameters,
                               .jobs = 2,
                               .threads = 2,
                               .folder = folder.path()};
  const Comparison all = compared(run, data, options);
  EXPECT_FALSE(all.interrupted);
  for (const ArmResult& arm : all.arms)
    for (size_t i = 0; i < 2; ++i) {
      TrainOptions train = run.train;
      train.seed = 3 + i, train.data_seed = 11 + i;
      if (arm.arm.label.ends_with("1e-2")) train.learning_rate = 0.01;
      Model model(arm.config);
      model->initialize(3 + i);
      Trainer trainer(model, data, train);
      const TrainResult alone = train_model(trainer, {});
      ASSERT_EQ(arm.runs[i].steps.size(), 6u);
      for (size_t step = 0; step < 6; ++step)
        EXPECT_NEAR(arm.runs[i].steps[step].loss, alone.steps[step].loss, 1e-5) << arm.arm.label << " " << i;
      EXPECT_NEAR(arm.losses[i], alone.evals.back().loss, 1e-5) << arm.arm.label << " " << i;
      const std::string saved =
          text("models/", arm.arm.label == "mha:learning_rate=1e-2" ? "mha-learning_rate-1e-2" : arm.arm.label, "-seed",
               3 + i);
      const Model stored = load_model_folder(folder.path() / saved);
      const Tensor mine = model->named_parameters()["lm_head.weight"];
      EXPECT_TRUE(at::allclose(stored->named_parameters()["lm_head.weight"], mine, 1e-4, 1e-5)) << saved;
    }
  EXPECT_EQ(all.arms[1].losses, all.arms[2].losses) << "two arms of one model";
  EXPECT_NE(all.arms[1].losses[0], all.arms[1].losses[1]) << "two seeds";
  EXPECT_NE(all.arms[1].runs[0].steps[0].loss, all.arms[1].runs[1].steps[0].loss);
}

TEST(Comparison, TrainsAllArmsAndReports) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.eval_every = 4;
  const TextData data = load_text_data(run);
  const CompareOptions options{
      .arms = parse_arms("mha,dcmha", json::object()), .seeds = 2, .jobs = 2, .threads = 2, .folder = folder.path()};
  const Comparison all = compared(run, data, options);
  ASSERT_EQ(all.arms[1].losses.size(), 2u);
  EXPECT_EQ(verdict(all, all.arms[0]), "baseline");
  EXPECT_GT(all.arms[1].tokens_per_second, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "models/dcmha-seed2/model.safetensors"));
  const json rows = json::parse(render(comparison_table({all}, run, data, Match::parameters), TableFormat::json));
  for (size_t i = 0; i < 2; ++i) {
    const ArmResult& arm = all.arms[i];
    EXPECT_EQ(rows[i]["mechanism"], arm.arm.label);
    EXPECT_DOUBLE_EQ(rows[i]["validation_loss"], (arm.losses[0] + arm.losses[1]) / 2);
    EXPECT_DOUBLE_EQ(rows[i]["bits_per_byte"], (arm.losses[0] + arm.losses[1]) / 2 / std::log(2.0));
    EXPECT_EQ(rows[i]["parameters"], arm.cost.parameters);
    EXPECT_EQ(rows[i]["ffn_width"], arm.config.intermediate_size());
    EXPECT_EQ(rows[i]["flops_per_token"], arm.cost.flops_per_token);
    EXPECT_EQ(rows[i]["tokens_per_second"], arm.tokens_per_second);
    EXPECT_EQ(rows[i]["kv_bytes_per_token"], arm.cost.cache_bytes_per_token);
  }
  const ReportData report = comparison_report({all}, run, data, {"motet compare", "a", {"x", "y"}, Match::parameters});
  EXPECT_EQ(report.curves.size(), 4u);
  bool before = false, after = false;
  for (const AttentionPicture& p : report.pictures)
    before |= p.kind == "before", after |= p.mechanism == "dcmha" && p.kind == "after";
  EXPECT_TRUE(before && after);
  for (size_t arm = 0; arm < 2; ++arm) {
    for (size_t seed = 0; seed < 2; ++seed) {
      const Curve& curve = report.curves[2 * arm + seed];
      const TrainResult& own = all.arms[arm].runs[seed];
      EXPECT_EQ(curve.mechanism, all.arms[arm].arm.label);
      EXPECT_EQ(curve.seed, 1 + seed);
      EXPECT_EQ(curve.step, (std::vector<double>{1, 2, 3, 4, 5, 6}));
      EXPECT_EQ(curve.loss.back(), own.steps.back().loss);
      EXPECT_EQ(curve.eval_step, (std::vector<double>{4, 6}));
      EXPECT_EQ(curve.eval_loss.back(), own.evals.back().loss);
      EXPECT_EQ(curve.tokens_per_step, 64);
      EXPECT_DOUBLE_EQ(curve.seconds_per_step * all.arms[arm].tokens_per_second, 64);
    }
    const CostPoint& point = report.points[arm];
    ASSERT_EQ(report.cost_axes.size(), 4u);
    const ModelCost& cost = all.arms[arm].cost;
    EXPECT_EQ(point.costs, (std::vector<double>{cost.flops_per_token, all.arms[arm].tokens_per_second,
                                                static_cast<double>(cost.parameters),
                                                static_cast<double>(cost.cache_bytes_per_token)}));
    EXPECT_EQ(report.cost_axes[1].name, "Training speed");
    EXPECT_TRUE(report.cost_axes[1].more_is_better);
    EXPECT_EQ(report.cost_axes[0].name, "FLOPs per token");
    EXPECT_EQ(report.cost_axes[2].name, "Parameters");
    EXPECT_EQ(report.cost_axes[3].name, "KV cache");
  }
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
  const Comparison all = compared(run, data, options);
  EXPECT_EQ(all.arms[0].losses.size(), 2u);
  EXPECT_EQ(all.arms[2].losses.size(), 2u);
  EXPECT_TRUE(all.arms[1].losses.empty());
  EXPECT_EQ(verdict(all, all.arms[1]), "diverged");
  EXPECT_EQ(all.failures().find("differential_v1:lambda_std=10 diverged: seed "), 0u) << all.failures();
  EXPECT_NE(all.failures().find("the loss is "), std::string::npos) << all.failures();
  EXPECT_NE(comparison_summary(all).find(all.failures()), std::string::npos);
  const json rows = json::parse(render(comparison_table({all}, run, data, Match::none), TableFormat::json));
  EXPECT_EQ(rows[1]["verdict"], "diverged");
  EXPECT_TRUE(rows[1]["validation_loss"].is_null());
  EXPECT_TRUE(rows[2]["validation_loss"].is_number());
  for (const char* key : {"parameters", "ffn_width", "kv_bytes_per_token"})
    EXPECT_TRUE(rows[0][key].is_number_integer()) << key;
  const ReportData report = comparison_report({all}, run, data, {"motet compare", "a", {"x", "", "y"}, Match::none});
  EXPECT_EQ(report.samples.size(), 2u);
  EXPECT_EQ(report.points.size(), 2u);
}

// Two arms of one model must show one memory, wherever they stand in the list.
TEST(Comparison, MemoryDoesNotDependOnTheOrderOfTheArms) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.context = 128, run.train.batch_size = 16, run.train.steps = 1;
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("mha,dcmha,softmax", json::object()),
                               .match = Match::none,
                               .threads = 2,
                               .folder = folder.path()};
  const Comparison all = compared(run, data, options);
  if (all.arms[0].peak_bytes == 0) GTEST_SKIP() << "the kernel does not tell";
  const double first = static_cast<double>(all.arms[0].peak_bytes), last = static_cast<double>(all.arms[2].peak_bytes);
  EXPECT_NEAR(first / last, 1, 0.08) << first << " " << last;
}

// Its allocator counts every byte; a thread of autograd may drop a gradient late.
TEST(Comparison, MemoryIsThatOfTheDevice) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.steps = 1, run.train.device = other_name();
  const TextData data = two_texts();
  const CompareOptions options{.arms = parse_arms("mha,dcmha,softmax", json::object()),
                               .match = Match::none,
                               .threads = 1,
                               .folder = folder.path()};
  const Comparison all = compared(run, data, options);
  const double first = static_cast<double>(all.arms[0].peak_bytes), last = static_cast<double>(all.arms[2].peak_bytes);
  EXPECT_NEAR(first / last, 1, 0.05) << first << " " << last;
  EXPECT_GT(all.arms[0].peak_bytes, 4 * 4 * all.arms[0].cost.parameters);
  EXPECT_LT(all.arms[0].peak_bytes, 32 * 4 * all.arms[0].cost.parameters);
  EXPECT_GT(all.arms[1].peak_bytes, all.arms[0].peak_bytes);
}

}  // namespace
}  // namespace motet
