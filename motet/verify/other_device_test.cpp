// Training, scoring, decoding and verification on a device that is not the CPU, without one.
#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/generate/decoder.h"
#include "motet/mechanisms/contender.h"
#include "motet/ops/other_device.h"
#include "motet/train/testing.h"
#include "motet/verify/verify.h"

namespace motet {
namespace {

using testing::other_device;
using testing::other_name;

double largest(const Tensor& a, const Tensor& b) { return (a.cpu() - b.cpu()).abs().max().item<double>(); }

TEST(OtherDevice, EveryMechanismTrainsAndScoresAsOnTheCpu) {
  const TextData data = testing::two_texts();
  for (const std::string& name : contender_names()) {
    SCOPED_TRACE(name);
    double loss[2], score[2];
    nlohmann::json diagnosis[2];
    for (const bool away : {false, true}) {
      RunConfig run = testing::small_run(
          {{"train.device", away ? other_name() : "cpu"}, {"train.dtype", "float64"}, {"train.diagnose_every", "3"}});
      run.attention_given = parse_contender(name, "");
      Model model(run.model_config(data.tokenizer->vocabulary_size()), away ? other_device() : at::Device(at::kCPU));
      model->initialize(1);
      Trainer trainer(model, data, run.train);
      for (int step = 0; step < 3; ++step) loss[away] = trainer.step().loss;
      diagnosis[away] = metrics_record(trainer.diagnose()).flatten();
      score[away] = trainer.evaluate().loss;
      EXPECT_EQ(trainer.model().device().is_cpu(), !away);
    }
    EXPECT_NEAR(loss[1], loss[0], 1e-12 * loss[0]);
    EXPECT_NEAR(score[1], score[0], 1e-12 * score[0]);
    ASSERT_EQ(diagnosis[1].size(), diagnosis[0].size());
    for (const auto& item : diagnosis[0].items())
      EXPECT_NEAR(diagnosis[1].at(item.key()).get<double>(), item.value().get<double>(), 1e-9) << item.key();
  }
}

// The loss and the gradient's norm come over in one copy, after the optimiser's step was asked for and the next batch
// was on its way; and what the clock shows has been done.
TEST(OtherDevice, AStepWaitsOnceForNumbersAndOnceForItsEnd) {
  const TextData data = testing::two_texts();
  for (const std::string& name : contender_names())
    for (const char* dtype : {"float32", "float64"}) {
      SCOPED_TRACE(name);
      RunConfig run = testing::small_run({{"train.device", other_name()}, {"train.dtype", dtype}});
      run.attention_given = parse_contender(name, "");
      Model model(run.model_config(data.tokenizer->vocabulary_size()), other_device());
      model->initialize(1);
      Trainer trainer(model, data, run.train);
      trainer.step();
      const testing::OtherCounts before = testing::other_counts();
      trainer.step();
      EXPECT_EQ(testing::other_counts().waits - before.waits, 1);
      EXPECT_EQ(testing::other_counts().since_wait, 0);
      EXPECT_EQ(testing::other_counts().synchronize - before.synchronize, 1);
      EXPECT_EQ(testing::other_counts().pinned - before.pinned, 2) << "inputs and targets";
      EXPECT_EQ(testing::other_counts().without_wait - before.without_wait, 2);
    }
}

// Where the host knows nothing before the step: its clip, its count of steps, a batch made ahead, for each optimiser.
TEST(OtherDevice, StepsThatNobodyWaitsForAreThoseOfTheCpu) {
  const TextData data = testing::two_texts();
  for (const char* optimizer : {"adamw", "adam", "sgd", "muon"})
    for (const char* clip : {"0", "0.05", "100"}) {
      SCOPED_TRACE(text(optimizer, ", clip ", clip));
      std::vector<std::pair<std::string, Tensor>> state[2];
      double loss[2];
      for (const bool away : {false, true}) {
        const RunConfig run = testing::small_run({{"train.device", away ? other_name() : "cpu"},
                                                  {"train.dtype", "float64"},
                                                  {"train.micro_batch_size", "2"},
                                                  {"train.optimizer", optimizer},
                                                  {"train.clip", clip}});
        Model model(run.model_config(data.tokenizer->vocabulary_size()), away ? other_device() : at::Device(at::kCPU));
        model->initialize(1);
        Trainer trainer(model, data, run.train);
        for (int step = 0; step < 3; ++step) loss[away] = trainer.step().loss;
        state[away] = trainer.tensors();
        for (const auto& item : trainer.model().named_parameters()) state[away].emplace_back(item.key(), item.value());
      }
      EXPECT_NEAR(loss[1], loss[0], 1e-12 * loss[0]);
      ASSERT_EQ(state[1].size(), state[0].size());
      for (size_t i = 0; i < state[0].size(); ++i) EXPECT_LE(largest(state[1][i].second, state[0][i].second), 1e-9);
    }
}

TEST(OtherDevice, AStepOfNumbersThatAreNoneChangesNothing) {
  const TextData data = testing::two_texts();
  for (const char* optimizer : {"adamw", "adam", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const RunConfig run = testing::small_run({{"train.device", other_name()}, {"train.optimizer", optimizer}});
    Model model(run.model_config(data.tokenizer->vocabulary_size()), other_device());
    model->initialize(1);
    Trainer trainer(model, data, run.train);
    trainer.step();
    std::vector<Tensor> kept;
    const auto all = [&] {
      std::vector<Tensor> now = trainer.model().parameters();
      for (const auto& [name, tensor] : trainer.tensors()) now.push_back(tensor);
      return now;
    };
    for (const Tensor& t : all()) kept.push_back(t.detach().cpu().clone());
    Tensor spoiled = trainer.model().named_parameters()["model.layers.1.mlp.down_proj.weight"];
    const auto hook = spoiled.register_hook([](const Tensor& gradient) { return gradient * NAN; });
    const std::string message = testing::message_of<Diverged>([&] { trainer.step(); });
    EXPECT_NE(message.find("the gradient of model.layers.1.mlp.down_proj.weight"), std::string::npos) << message;
    const std::vector<Tensor> after = all();
    ASSERT_EQ(after.size(), kept.size());
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(after[i].detach().cpu().equal(kept[i])) << i;
    spoiled.remove_hook(hook);
    EXPECT_EQ(trainer.step().step, 2);
  }
}

TEST(OtherDevice, EveryMechanismDecodesAsOnTheCpu) {
  for (const std::string& name : contender_names())
    for (const CacheType type : {CacheType::model, CacheType::int8}) {
      SCOPED_TRACE(name);
      const ModelConfig config = testing::tiny({}, parse_contender(name, ""));
      Tensor logits[2];
      for (const bool away : {false, true}) {
        Model model(config, away ? other_device() : at::Device(at::kCPU));
        model->initialize(1);
        Decoder decoder(*model, {1, 2, 3}, 8, {.type = type});
        for (const int32_t next : {4, 5}) {
          decoder.logits();
          decoder.push({{next}});
        }
        logits[away] = decoder.logits();
      }
      EXPECT_LE(largest(logits[0], logits[1]), 1e-5);
    }
}

TEST(OtherDevice, ACacheHasToFitTheDeviceAndNotTheHost) {
  Model model(testing::tiny(), other_device());
  testing::set_other_memory(1);
  const std::string refused = testing::message_of<Error>([&] { Decoder(*model, {1, 2, 3}, 8); });
  EXPECT_NE(refused.find("free on host_copy:0"), std::string::npos) << refused;
  testing::set_other_memory(int64_t{1} << 60);
  EXPECT_NO_THROW(Decoder(*model, {1, 2, 3}, 8));
  testing::set_other_memory(0);
}

TEST(OtherDevice, RecordedFilesAreVerifiedThere) {
  for (const std::string folder : {"tests/golden/op", "tests/golden/model"}) {
    int verified = 0;
    for (const std::string& path : golden_files({folder})) {
      const FileReport report = verify_file(path, {.device = other_device()});
      EXPECT_TRUE(report.passed()) << path;
      if (++verified == 12) break;
    }
    EXPECT_GT(verified, 0) << folder;
  }
}

}  // namespace
}  // namespace motet
