// Training against tests/golden/curves, which scripts/golden_curves.py made with eager PyTorch alone.
#include "motet/checkpoints/tensors.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"
#include "motet/train/schedule.h"
#include "motet/train/testing.h"

#include <gtest/gtest.h>

#include <set>

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kCurves = "tests/golden/curves";

std::vector<std::string> curves() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCurves))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

struct Curve {
  json record;
  TextData data;
  RunConfig run;

  explicit Curve(const std::string& name) : record(parse_json(read_file(kCurves / (name + ".json")), name)) {
    data.tokenizer = make_tokenizer("bytes", "");
    data.train = std::make_shared<MemoryTokens>(record["tokens"].get<std::vector<int32_t>>());
    data.validation = std::make_shared<MemoryTokens>(record["validation_tokens"].get<std::vector<int32_t>>());
    json model = record["model"];
    model["attention"] = record["attention"];
    run = read_run_config(json::object(), {{"model", model}, {"train", record["train"]}});
  }

  // The recorded start under a trainer of this dtype.
  Trainer start(const std::string& name, TrainDtype dtype) {
    run.train.dtype = dtype;
    Model model(run.model_config(record["vocabulary"].get<int64_t>()));
    const Tensors stored = safetensors_tensors((kCurves / (name + ".safetensors")).string());
    at::NoGradGuard no_grad;
    auto parameters = model->named_parameters();
    EXPECT_EQ(parameters.size(), stored.all.size()) << name;
    for (auto& item : parameters) {
      const StoredTensor& tensor = stored.all.at(item.key());
      EXPECT_EQ(item.value().sizes().vec(), tensor.shape) << item.key();
      item.value().copy_(tensor.load());
    }
    return Trainer(model, data, run.train);
  }
};

void expect_near(double got, const json& wanted, double tolerance, const std::string& what) {
  const double value = wanted.get<double>();
  EXPECT_NEAR(got / value, 1, tolerance) << what << ": " << got << ", want " << value;
}

TEST(Curves, EveryMechanismAndBlockIsRecorded) {
  std::set<std::string> mechanisms, blocks;
  for (const std::string& name : curves()) {
    const Curve curve(name);
    mechanisms.insert(curve.record["attention"]["mechanism"]);
    blocks.insert(curve.run.resolved()["model"]["block"]);
  }
  for (const std::string& name : mechanism_names()) EXPECT_TRUE(mechanisms.contains(name)) << name;
  for (const std::string& name : find_option(model_options().table(), "block", "model").choices)
    EXPECT_TRUE(blocks.contains(name)) << name;
}

TEST(Curves, ThirtyStepsInFloat64AreTheRecordedOnes) {
  for (const std::string& name : curves()) {
    Curve curve(name);
    Trainer trainer = curve.start(name, TrainDtype::float64);
    const TrainResult result = train_model(trainer, {});
    const json& steps = curve.record["steps"];
    ASSERT_EQ(result.steps.size(), 30u);
    ASSERT_EQ(result.steps.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string what = text(name, " step ", i + 1);
      expect_near(result.steps[i].loss, steps[i]["loss"], 1e-9, what + " loss");
      expect_near(result.steps[i].learning_rate, steps[i]["learning_rate"], 1e-13, what + " learning rate");
      expect_near(result.steps[i].gradient_norm, steps[i]["gradient_norm"], 1e-8, what + " gradient norm");
    }
    const json& evaluations = curve.record["evaluations"];
    ASSERT_EQ(result.evals.size(), evaluations.size());
    for (size_t i = 0; i < evaluations.size(); ++i) {
      EXPECT_EQ(result.evals[i].step, evaluations[i]["step"]);
      expect_near(result.evals[i].loss, evaluations[i]["loss"], 1e-9, text(name, " evaluation ", i));
    }
  }
}

TEST(Curves, TenStepsInFloat32AreTheRecordedOnes) {
  for (const std::string& name : curves()) {
    Curve curve(name);
    Trainer trainer = curve.start(name, TrainDtype::float32);
    for (size_t i = 0; i < 10; ++i)
      expect_near(trainer.step().loss, curve.record["steps"][i]["loss"], 1e-4, text(name, " step ", i + 1));
    expect_near(trainer.evaluate().loss, curve.record["evaluations"][0]["loss"], 1e-4, name + " evaluation");
  }
}

TEST(Optimizer, TwentyStepsAreThoseOfTorch) {
  const json record = parse_json(read_file(kCurves / "optimizers.json"), "optimizers.json");
  for (const auto& [word, kind] : optimizer_kinds()) {
    Model model(tiny({{"hidden_size", 4}}, {{"num_heads", 2}}, 5));
    model->to(at::kDouble);
    auto parameters = model->named_parameters();
    const json& wanted = record["parameters"].at(word);
    for (const auto& item : wanted.items()) {
      at::NoGradGuard no_grad;
      Tensor& p = parameters[item.key()];
      p.copy_(at::arange(p.numel(), at::kDouble).cos().view(p.sizes()));
    }
    Optimizer optimizer(*model, {.kind = kind,
                                 .beta1 = record["beta1"],
                                 .beta2 = record["beta2"],
                                 .epsilon = record["epsilon"],
                                 .weight_decay = record["weight_decay"],
                                 .momentum = record["momentum"],
                                 .learning_rate = record["learning_rate"],
                                 .muon_learning_rate = record["muon_learning_rate"]});
    for (int64_t step = 1; step <= record["steps"]; ++step) {
      optimizer.zero_grad();
      for (const auto& item : wanted.items()) {
        Tensor& p = parameters[item.key()];
        const double s = static_cast<double>(step);
        p.mutable_grad() = ((at::arange(p.numel(), at::kDouble) + 1) * s).sin().div(s).view(p.sizes());
      }
      optimizer.step();
    }
    for (const auto& item : wanted.items()) {
      const Tensor values = at::tensor(item.value().get<std::vector<double>>(), at::kDouble);
      const double error = (parameters[item.key()].flatten() - values).abs().max().item<double>();
      EXPECT_LE(error, kind == OptimizerKind::muon ? 1e-6 : 1e-12) << word << " " << item.key();
    }
  }
}

TEST(Schedule, EveryRateIsThatOfTorchsSchedulers) {
  std::set<std::string> seen;
  for (const json& record : parse_json(read_file(kCurves / "schedules.json"), "schedules.json")) {
    json options = record["options"];
    options["steps"] = record["steps"];
    const TrainOptions train = train_options().parse(options, "train");
    for (int64_t i = 0; i < train.steps; ++i)
      EXPECT_NEAR(
          learning_rate_factor(train, static_cast<double>(i + 1) / static_cast<double>(train.steps), train.steps),
          record["factors"][static_cast<size_t>(i)].get<double>(), 1e-12)
          << record["options"] << " step " << i + 1;
    seen.insert(options["schedule"]);
  }
  EXPECT_EQ(seen.size(), 5u);
}

// A budget in minutes knows nothing of its steps at the first one.
TEST(Schedule, TheFirstStepOfABudgetInMinutesHasAFiniteRate) {
  for (const char* schedule : {"cosine", "linear", "wsd", "inverse_sqrt", "constant"})
    for (const double warmup : {0.0, 0.1}) {
      const json options = {{"minutes", 1}, {"schedule", schedule}, {"warmup", warmup}};
      const double factor = learning_rate_factor(train_options().parse(options, "train"), 0, 1);
      EXPECT_EQ(factor, warmup == 0 ? 1 : 0) << schedule << ", warmup " << warmup;
    }
}

}  // namespace
}  // namespace motet
