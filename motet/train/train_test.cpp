#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

using Overrides = std::vector<std::pair<std::string, std::string>>;

json request_of(const Overrides& set) {
  json request{{"set", json::array()}};
  for (const auto& [key, value] : set) request["set"].push_back({key, value});
  return request;
}

RunConfig config(const Overrides& set) {
  return read_run_config(request_of(set), {{"train", {{"context", 16}, {"batch_size", 4}, {"steps", 40}}},
                                           {"model", {{"hidden_size", 16}}}});
}

TextData text_data() {
  const std::string text = "the quick brown fox jumps over the lazy dog and runs away. ";
  TextData data;
  data.tokenizer = make_tokenizer("chars", text);
  std::vector<int32_t> tokens;
  std::vector<uint64_t> starts;
  for (int i = 0; i < 20; ++i) {
    starts.push_back(tokens.size());
    for (int32_t id : data.tokenizer->encode(text)) tokens.push_back(id);
  }
  data.train = data.validation = std::make_shared<MemoryTokens>(tokens, starts);
  return data;
}

Trainer trainer(const RunConfig& run, const TextData& data, const char* mechanism = "softmax") {
  RunConfig own = run;
  own.attention_given["mechanism"] = mechanism;
  Model model(own.model_config(data.tokenizer->vocabulary_size()));
  model->initialize(1);
  return Trainer(model, data, run.train);
}

TEST(Trainer, EveryMechanismLearns) {
  const RunConfig run = config({{"train.learning_rate", "0.01"}});
  const TextData data = text_data();
  for (const std::string& mechanism : mechanism_names()) {
    Trainer t = trainer(run, data, mechanism.c_str());
    const double before = t.evaluate().loss;
    const TrainResult result = train_model(t, {});
    EXPECT_EQ(result.steps.size(), 40u);
    EXPECT_LT(result.evals.back().loss, before - 0.5) << mechanism;
    EXPECT_EQ(result.evals.back().step, 40);
    EXPECT_EQ(result.evals.size(), 10u);
  }
}

TEST(Trainer, SameSeedsGiveTheSameLosses) {
  const RunConfig run = config({{"train.steps", "5"}});
  const TextData data = text_data();
  Trainer a = trainer(run, data, "dcmha"), b = trainer(run, data, "dcmha");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(a.step().loss, b.step().loss);
}

TEST(Trainer, BudgetInTokensRoundsUpToSteps) {
  const RunConfig run = config({{"train.steps", "0"}, {"train.tokens", "130"}});
  const TextData data = text_data();
  EXPECT_EQ(trainer(run, data).planned_steps(), 3);
}

TEST(Trainer, LearningRateRisesThenFallsToItsEnd) {
  const RunConfig run =
      config({{"train.learning_rate", "0.01"}, {"train.warmup", "0.25"}, {"train.final_learning_rate", "0.1"}});
  const TextData data = text_data();
  Trainer t = trainer(run, data);
  const TrainResult r = train_model(t, {});
  EXPECT_NEAR(r.steps[0].learning_rate, 0.01 / 10, 1e-12);
  EXPECT_NEAR(r.steps[9].learning_rate, 0.01, 1e-12);
  EXPECT_NEAR(r.steps[39].learning_rate, 0.001, 1e-12);
}

TEST(Trainer, NonFiniteLossNamesStepAndLayer) {
  const RunConfig run = config({});
  const TextData data = text_data();
  Trainer t = trainer(run, data);
  t.step();
  {
    at::NoGradGuard no_grad;
    t.model().named_parameters()["model.layers.1.self_attn.o_proj.weight"].fill_(NAN);
  }
  const std::string message = message_of<Error>([&] { t.step(); });
  EXPECT_NE(message.find("step 2: the loss is nan"), std::string::npos) << message;
  EXPECT_NE(message.find("layer 1"), std::string::npos) << message;
}

TEST(Trainer, NonFiniteValidationLossNamesStepAndLayer) {
  const RunConfig run =
      config({{"train.steps", "1"}, {"train.beta1", "0"}, {"train.beta2", "0"}, {"train.epsilon", "0"}});
  const TextData data = text_data();
  Trainer t = trainer(run, data);
  t.step();  // divides by gradients that are 0
  const std::string message = message_of<Diverged>([&] { t.evaluate(); });
  EXPECT_NE(message.find("step 1: the validation loss is nan; the first number that is not finite appears in "),
            std::string::npos)
      << message;
}

TEST(Trainer, Bfloat16AutocastLearnsToo) {
  const RunConfig run = config({{"train.dtype", "bfloat16"}, {"train.learning_rate", "0.01"}});
  const TextData data = text_data();
  Trainer t = trainer(run, data, "dcmha");
  const double before = t.evaluate().loss;
  EXPECT_LT(train_model(t, {}).evals.back().loss, before - 0.5);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

// The tokens that each step reads: only their rows of the embedding get a gradient.
std::vector<std::vector<int64_t>> tokens_seen(Overrides seeds) {
  for (const auto& size : {std::pair("train.batch_size", "1"), std::pair("train.context", "4")})
    seeds.emplace_back(size);
  const RunConfig run = config(seeds);
  const TextData data = text_data();
  Model model(run.model_config(data.tokenizer->vocabulary_size()));
  model->initialize(run.train["seed"].get<uint64_t>());
  Trainer t(model, data, run.train);
  std::vector<std::vector<int64_t>> seen;
  for (int i = 0; i < 10; ++i) {
    t.step();
    const Tensor read = model->named_parameters()["model.embed_tokens.weight"].grad().abs().sum(1).nonzero().flatten();
    seen.emplace_back(read.const_data_ptr<int64_t>(), read.const_data_ptr<int64_t>() + read.numel());
  }
  return seen;
}

TEST(Trainer, BatchesDoNotDependOnTheModelsSeed) {
  const auto one = tokens_seen({{"train.seed", "1"}});
  EXPECT_EQ(tokens_seen({{"train.seed", "2"}}), one);
  EXPECT_NE(tokens_seen({{"train.seed", "1"}, {"train.data_seed", "1"}}), one);
}

TEST(Trainer, DocumentsApartReadTheSameTokensAndLearnOtherwise) {
  const RunConfig run = config({{"train.steps", "3"}});
  TextData data = text_data();
  Trainer packed = trainer(run, data);
  data.documents_apart = true;
  Trainer apart = trainer(run, data);
  EXPECT_NE(packed.step().loss, apart.step().loss);
  EXPECT_NE(packed.evaluate().loss, apart.evaluate().loss);
}

TEST(AdamW, DecaysMatricesOnly) {
  const auto none = at::zeros({4}), matrix = at::zeros({4, 4});
  EXPECT_TRUE(decays("model.layers.0.self_attn.q_proj.weight", matrix));
  EXPECT_TRUE(decays("model.layers.0.mlp.gate_proj.weight", matrix));
  EXPECT_FALSE(decays("model.norm.weight", none));
  EXPECT_FALSE(decays("model.layers.0.self_attn.q_proj.bias", none));
  EXPECT_FALSE(decays("model.layers.0.self_attn.compose_gate", matrix));
  EXPECT_FALSE(decays("model.layers.0.self_attn.lambda_q1", none));
}

TEST(AdamW, ClipScalesTheWholeGradient) {
  Model model = fresh(tiny());
  AdamW optimizer(*model, {});
  for (Tensor p : model->parameters()) p.mutable_grad() = at::ones_like(p);
  const double before = optimizer.clip(0);
  EXPECT_NEAR(before, std::sqrt(static_cast<double>(model->num_parameters())), 1e-3);
  optimizer.clip(1.0);
  EXPECT_NEAR(optimizer.clip(0), 1.0, 1e-4);
}

TEST(RunConfig, MistakesAreNamedWithTheNearestKey) {
  const auto says = [](const char* key, const char* value, const char* message) {
    const std::string got = message_of<UsageError>([&] { config({{key, value}}).model_config(10); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  says("train.learning_rat", "1", "learning_rate");
  says("trian.steps", "1", "nearest is 'train'");
  says("model.hidden_size", "-3", "model.hidden_size: '-3' is below 1");
  says("train.steps", "many", "train.steps: 'many' is not");
  says("model.attention.rank", "2", "unknown");
  says("model.attention", "3", "'model.attention' is a section, want one of its keys");
  says("train.steps", "0", "no budget");
  says("steps", "3", "is no key");
}

TEST(RunConfig, BudgetOfTheCommandLineReplacesThatOfTheFileAndThatTheDefault) {
  const TemporaryFolder folder;
  const json defaults{{"train", {{"steps", 40}}}};
  const auto budgets = [&](const std::string& file, const Overrides& set) {
    write_file_atomic(folder / "a.toml", file);
    json request = request_of(set);
    request["config"] = folder / "a.toml";
    const json t = read_run_config(request, defaults).train;
    return json::array({t["steps"], t["tokens"], t["minutes"]});
  };
  EXPECT_EQ(budgets("", {}), json({40, 0, 0}));
  EXPECT_EQ(budgets("[train]\ntokens = 300", {}), json({0, 300, 0}));
  EXPECT_EQ(budgets("[train]\ntokens = 300", {{"train.steps", "2"}}), json({2, 0, 0}));
  EXPECT_EQ(budgets("[train]\nsteps = 3\ntokens = 0", {{"train.minutes", "1"}}), json({0, 0, 1}));
  const std::string both = message_of<UsageError>([&] { budgets("", {{"train.steps", "2"}, {"train.tokens", "5"}}); });
  EXPECT_NE(both.find("more than one of steps, tokens and minutes"), std::string::npos) << both;
  message_of<UsageError>([&] { budgets("[train]\nsteps = 3\ntokens = 5", {}); });
}

TEST(RunConfig, AttentionThatIsNoSectionIsRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.toml", "[model]\nattention = 3\n");
  json request = request_of({{"model.attention.num_heads", "2"}});
  request["config"] = folder / "a.toml";
  EXPECT_EQ(message_of<UsageError>([&] { read_run_config(request); }),
            (folder / "a.toml") + ": model.attention: want a section");
}

TEST(RunConfig, OverridesAreShownInTheTypeOfTheirOption) {
  const json given = config({{"model.attention.num_heads", "2"},
                             {"model.attention.mechanism", "dcmha"},
                             {"model.attention.static", "true"},
                             {"model.attention.rope_base", "1e5"}})
                         .as_given()["model"]["attention"];
  EXPECT_EQ(given, json({{"num_heads", 2}, {"mechanism", "dcmha"}, {"static", true}, {"rope_base", 1e5}}));
}

TEST(RunConfig, DescribesEveryOption) {
  const std::string all = describe_options();
  for (const char* key : {"hidden_size", "rank", "lambda_start", "learning_rate", "tokenizer", "rope_base"})
    EXPECT_NE(all.find(std::string("  ") + key + " = "), std::string::npos) << key;
}

}  // namespace
}  // namespace motet
