#include "motet/train/plan.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/mechanisms/contender.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(Plan, ShapesAloneGiveTheCostOfTheModel) {
  for (const std::string& name : contender_names())
    for (const char* block : {"sequential", "parallel", "sequential_layer_norm"}) {
      RunConfig run = small_run({{"model.block", block}});
      run.attention_given = parse_contender(name, "");
      const ModelConfig config = run.model_config(50);
      const TrainingPlan plan = training_plan(config, run.train);
      const Model model = fresh(config);
      const ModelCost real = model_cost(*model.ptr());
      EXPECT_EQ(plan.cost.parameters, model.ptr()->num_parameters());
      EXPECT_EQ(plan.cost.flops_per_token, real.flops_per_token) << name << " " << block;
      EXPECT_EQ(plan.cost.cache_bytes_per_token, real.cache_bytes_per_token) << name;
      EXPECT_EQ(plan.cost.parts, real.parts) << name;
      EXPECT_EQ(plan.checkpoint_bytes, 4 * real.parameters);
      EXPECT_EQ(plan.training_bytes, 16 * real.parameters);
    }
}

TEST(Plan, BytesFollowTheDtype) {
  const auto plan = [](const char* dtype) {
    const RunConfig run = small_run({{"train.dtype", dtype}});
    return training_plan(run.model_config(50), run.train);
  };
  EXPECT_EQ(plan("float64").checkpoint_bytes, 2 * plan("float32").checkpoint_bytes);
  EXPECT_EQ(plan("float64").activation_bytes, 2 * plan("float32").activation_bytes);
  EXPECT_EQ(plan("bfloat16").training_bytes, plan("float32").training_bytes);
  EXPECT_LT(plan("bfloat16").activation_bytes, plan("float32").activation_bytes);
  // 64 tokens; 2 layers of 6 x 16 + 3 x 43 numbers, and the logits with their gradient.
  EXPECT_EQ(plan("float32").activation_bytes, 64 * (2 * (6 * 16 + 3 * 43) * 4 + 2 * 50 * 4));
}

TEST(Plan, ItIsSaidWhenNoCheckpointCanBeTheBest) {
  const auto remark = [](const char* evaluated, const char* saved, const char* steps, const char* best = "1") {
    return remark_on_best(small_run({{"train.eval_every", evaluated},
                                     {"train.checkpoint_every", saved},
                                     {"train.steps", steps},
                                     {"train.keep_best", best}})
                              .train);
  };
  EXPECT_NE(remark("7", "10", "70").find("(every 10 steps) none but the last falls on an evaluation (every 7)"),
            std::string::npos);
  EXPECT_EQ(remark("7", "10", "71"), "");
  EXPECT_EQ(remark("5", "10", "20"), "");
  EXPECT_EQ(remark("7", "70", "70"), "") << "there is only the last";
  EXPECT_EQ(remark("0", "10", "11"), "");
  EXPECT_EQ(remark("7", "10", "70", "0"), "");
}

TEST(Plan, WhatSavesMemoryIsCounted) {
  const auto plan = [](const Overrides& set) {
    const RunConfig run = small_run(set);
    return training_plan(run.model_config(50), run.train);
  };
  const TrainingPlan plain = plan({});
  const int64_t layers = 64 * 2 * (6 * 16 + 3 * 43) * 4, logits = 64 * 2 * 50 * 4;
  EXPECT_EQ(plan({{"train.micro_batch_size", "1"}}).activation_bytes, (layers + logits) / 4);
  EXPECT_EQ(plan({{"train.micro_batch_size", "100"}}).activation_bytes, layers + logits);
  EXPECT_EQ(plan({{"train.loss_rows", "16"}}).activation_bytes, layers + logits / 4);
  EXPECT_EQ(plan({{"train.recompute", "block"}}).activation_bytes, layers / 2 + 64 * 2 * 16 * 4 + logits);
  EXPECT_EQ(plain.run_checkpoint_bytes, 3 * plain.checkpoint_bytes);
  EXPECT_EQ(plan({{"train.optimizer", "sgd"}}).run_checkpoint_bytes, 2 * plain.checkpoint_bytes);
  EXPECT_EQ(plan({{"train.optimizer", "sgd"}}).training_bytes, 3 * plain.checkpoint_bytes);
  EXPECT_EQ(plan({{"train.async_checkpoint", "true"}}).training_bytes, 7 * plain.checkpoint_bytes);
}

// One that no machine could hold.
TEST(Plan, ALargeModelTakesNoMemory) {
  const RunConfig run = small_run({{"model.hidden_size", "16384"}, {"model.num_layers", "96"}});
  EXPECT_GT(training_plan(run.model_config(50000), run.train).training_bytes, int64_t{1} << 42);
}

TEST(Plan, WhatDoesNotFitIsRefusedWithBytesAndKey) {
  const TrainingPlan plan{.cost = {}, .checkpoint_bytes = 25, .training_bytes = 100, .activation_bytes = 50};
  check_memory(plan, 150);
  check_memory(plan, std::nullopt);  // not known
  EXPECT_EQ(
      message_of<Error>([&] { check_memory(plan, 149); }),
      "train: a step takes at least 50 bytes beside 100 of the model, want at most the 149 that are free: a smaller "
      "train.micro_batch_size or train.context, or train.recompute = block");
  EXPECT_EQ(message_of<Error>([&] { check_memory(plan, 99); }),
            "train: parameters, gradients and the state of the optimiser take 100 bytes, want at most the 99 that are "
            "free: a smaller model.hidden_size or model.num_layers");
  check_memory(plan, 450, 3);
  EXPECT_EQ(message_of<Error>([&] {
              check_memory(plan, 449, 3);
            }).find("train: a step of 3 processes takes at least 150 bytes beside 300 of the model, want"),
            0u);
  EXPECT_EQ(message_of<Error>([&] {
              check_memory(plan, 299, 3);
            }).find("train: parameters, gradients and the state of the optimiser of 3 processes take 300 bytes"),
            0u);
}

TEST(Plan, CheckpointsThatAreThereNeedNoRoom) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& stored) {
    return message_of<Error>([&] { check_disk(folder.path(), int64_t{1} << 42, stored); });
  };
  check_disk(folder.path(), 1, {});
  EXPECT_NE(refused({}).find(": checkpoints take 4398046511104 bytes more, want at most the "), std::string::npos);
  std::filesystem::create_directories(folder.path() / "checkpoints" / "step_1");
  const auto file = folder.path() / "checkpoints" / "step_1" / "model.safetensors";
  write_file_atomic(file, "");
  std::filesystem::resize_file(file, (uint64_t{1} << 42) - 1);  // of holes
  EXPECT_NE(refused({"models"}).find(" 4398046511104 bytes"), std::string::npos);
  check_disk(folder.path(), int64_t{1} << 42, {"checkpoints", "models"});
}

TEST(Plan, NoMoreCheckpointsAreCountedThanTheRunMakes) {
  const auto count = [](const Overrides& set) { return checkpoints_at_once(small_run(set).train); };
  EXPECT_EQ(count({}), 4) << "two last, a best and the one that is written";
  EXPECT_EQ(count({{"train.average", "ema:0.9"}}), 5);
  EXPECT_EQ(count({{"train.steps", "3"}}), 3);
  EXPECT_EQ(count({{"train.checkpoint_every", "20"}}), 2);
  EXPECT_EQ(count({{"train.checkpoint_every", "39"}}), 2) << "the last step has one too";
  EXPECT_EQ(count({{"train.keep_last", "0"}}), 10);
  EXPECT_EQ(count({{"train.keep_last", "0"}, {"train.steps", "7"}}), 7);
  EXPECT_EQ(count({{"train.keep_last", "0"}, {"train.checkpoint_every", "3"}}), 14);
  const auto with = [&](Overrides more) { return more.emplace_back("train.minutes", "1"), count(more); };
  EXPECT_EQ(with({}), 4);
  EXPECT_EQ(with({{"train.keep_last", "20"}}), 10) << "ten in a run";
  EXPECT_EQ(with({{"train.keep_last", "20"}, {"train.checkpoint_every", "1"}}), 22);
  EXPECT_EQ(with({{"train.keep_last", "0"}, {"train.checkpoint_every", "1"}}), 10);
}

}  // namespace
}  // namespace motet
