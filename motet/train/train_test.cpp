#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/mechanisms/contender.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

// Eight tokens at random, eight times over, then eight others: a token is told by the one eight places back, and by no
// count of pairs.
TextData repeats(uint64_t seed) {
  TextData data{.name = "repeats", .tokenizer = make_tokenizer("chars", "abcdefgh")};
  at::Generator random = at::detail::createCPUGenerator(seed);
  const Tensor all = at::randint(0, 8, {1024, 1, 8}, random, at::kLong).expand({-1, 8, -1}).reshape(-1);
  data.train = data.validation = std::make_shared<MemoryTokens>(
      std::vector<int32_t>(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()));
  return data;
}

// Pairs alone give ln 8 = 2.08 nats.
TEST(Trainer, EveryMechanismLearnsWhatPairsOfTokensDoNotTell) {
  const RunConfig run = small_run({{"train.learning_rate", "0.01"},
                                   {"train.steps", "200"},
                                   {"train.context", "32"},
                                   {"train.batch_size", "16"},
                                   {"train.final_eval_windows", "64"},
                                   {"model.hidden_size", "32"}});
  const TextData data = repeats(1);
  for (const std::string& mechanism : contender_names()) {
    RunConfig own = run;
    own.attention_given = parse_contender(mechanism, "");
    Model model(own.model_config(8));
    model->initialize(1);
    Trainer t(model, data, run.train);
    const TrainResult result = train_model(t, {});
    EXPECT_LT(result.evals.back().loss, 1.9) << mechanism;
    EXPECT_EQ(result.evals.back().step, 200);
    EXPECT_EQ(result.evals.size(), 10u);
  }
}

TEST(Trainer, SameSeedsGiveTheSameLosses) {
  const RunConfig run = small_run({{"train.steps", "5"}});
  const TextData data = two_texts();
  Trainer a = trainer(run, data, "dcmha"), b = trainer(run, data, "dcmha");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(a.step().loss, b.step().loss);
}

TEST(Trainer, BudgetInTokensRoundsUpToSteps) {
  const RunConfig run = small_run({{"train.steps", "0"}, {"train.tokens", "130"}});
  const TextData data = two_texts();
  EXPECT_EQ(trainer(run, data).planned_steps(), 3);
}

TEST(Trainer, LearningRateRisesThenFallsToItsEnd) {
  const RunConfig run =
      small_run({{"train.learning_rate", "0.01"}, {"train.warmup", "0.25"}, {"train.final_learning_rate", "0.1"}});
  const TextData data = two_texts();
  Trainer t = trainer(run, data);
  const TrainResult r = train_model(t, {});
  EXPECT_NEAR(r.steps[0].learning_rate, 0.01 / 10, 1e-12);
  EXPECT_NEAR(r.steps[9].learning_rate, 0.01, 1e-12);
  EXPECT_NEAR(r.steps[39].learning_rate, 0.001, 1e-12);
}

TEST(Trainer, NonFiniteLossNamesStepAndLayer) {
  const RunConfig run = small_run();
  const TextData data = two_texts();
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
      small_run({{"train.steps", "1"}, {"train.beta1", "0"}, {"train.beta2", "0"}, {"train.epsilon", "0"}});
  const TextData data = two_texts();
  Trainer t = trainer(run, data);
  t.step();  // divides by gradients that are 0
  const std::string message = message_of<Diverged>([&] { t.evaluate(); });
  EXPECT_NE(message.find("step 1: the validation loss is nan; the first number that is not finite appears in "),
            std::string::npos)
      << message;
}

// Presets, and what of each mechanism has a way of its own without gradients.
std::vector<std::string> variants() {
  std::vector<std::string> all = contender_names();
  for (const char* more : {"mha:num_kv_heads=2", "mha:window=5", "mha:position_bias=relative", "mha:qk_norm=true",
                           "talking_heads:dynamic=both", "dcmha:groups=2", "dcmha:static=true:rank=1",
                           "dcmha:low_rank=false", "dcmha:where=post:gelu=tanh", "coca:form=slack", "coca:form=strict"})
    all.push_back(more);
  return all;
}

double relative_error(const Tensor& got, const Tensor& wanted) {
  return ((got - wanted).abs().max() / wanted.abs().max()).item<double>();
}

// What is kept for inference must not outlive the parameters it was made from: many rows go through torch, few through
// the small kernels.
TEST(Trainer, AForwardWithoutGradientIsTheOneWithGradientAfterEveryStep) {
  const TextData data = two_texts();
  const Tensor many = at::arange(48).remainder(11).view({3, 16}), few = many.slice(0, 0, 1).slice(1, 0, 4);
  for (const char* dtype : {"float32", "float64", "bfloat16"})
    for (const char* block : {"sequential", "parallel", "sequential_layer_norm"})
      for (const std::string& variant : variants()) {
        RunConfig run = small_run({{"train.dtype", dtype}, {"model.block", block}, {"train.learning_rate", "0.05"}});
        run.attention_given = parse_contender(variant, "");
        run.attention_given["num_heads"] = 4;
        Model model(run.model_config(data.tokenizer->vocabulary_size()));
        model->initialize(1);
        Trainer t(model, data, run.train);
        const double tolerance = model->config().autocast ? 1e-3 : std::string(dtype) == "float64" ? 1e-12 : 1e-5;
        for (int step = 1; step <= 5; ++step) {
          const Tensor before = model->forward(many).detach();
          t.step();
          for (const Tensor& ids : {many, few}) {
            const Tensor with = model->forward(ids).detach();
            const at::NoGradGuard no_grad;
            const double error = relative_error(model->forward(ids), with);
            EXPECT_LE(error, tolerance) << variant << " " << block << " " << dtype << " step " << step;
          }
          EXPECT_GT(relative_error(before, model->forward(many).detach()), 0.03) << "the step must be seen";
        }
      }
}

TEST(Trainer, Bfloat16IsTorchsAutocastInTrainingAndEvaluation) {
  const TextData data = two_texts();
  for (const std::string& mechanism : mechanism_names()) {
    Trainer narrow = trainer(small_run({{"train.dtype", "bfloat16"}}), data, mechanism),
            wide = trainer(small_run(), data, mechanism);
    const auto under_autocast = [&](const auto& action) {
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const double value = action();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      return value;
    };
    const double evaluated = narrow.evaluate().loss;
    EXPECT_EQ(evaluated, under_autocast([&] { return wide.evaluate().loss; })) << mechanism;
    EXPECT_NE(evaluated, wide.evaluate().loss) << mechanism;
    EXPECT_EQ(narrow.step().loss, under_autocast([&] { return wide.step().loss; })) << mechanism;
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_EQ(narrow.model().forward(at::zeros({1, 3}, at::kLong)).scalar_type(), at::kBFloat16);
    EXPECT_EQ(narrow.model().parameters()[0].scalar_type(), at::kFloat);
  }
}

// On a CPU without AMX always, and on any for another dtype than float32.
TEST(Trainer, PrecisionHighIsRefusedWhereItChangesNothing) {
  const TextData data = two_texts();
  const Overrides high{{"train.matmul_precision", "high"}, {"train.device", "cpu"}};
  Overrides narrow = high;
  narrow.emplace_back("train.dtype", "bfloat16");
  const std::string refused = "train.matmul_precision: high, want highest: ";
  EXPECT_EQ(message_of<UsageError>([&] { trainer(small_run(narrow), data); }),
            refused + why_not_high(at::kCPU, at::kBFloat16));
  const RunConfig planned = small_run(narrow);  // --dry-run has no model with numbers
  Model shape(planned.model_config(data.vocabulary()), at::kMeta);
  EXPECT_EQ(message_of<UsageError>([&] { check_training(*shape, data, planned.train, 1); }),
            refused + why_not_high(at::kCPU, at::kBFloat16));
  if (const std::string reason = why_not_high(at::kCPU, at::kFloat); !reason.empty())
    EXPECT_EQ(message_of<UsageError>([&] { trainer(small_run(high), data); }), refused + reason);
  else
    EXPECT_EQ(trainer(small_run(high), data).model().blocks()[0]->self_attn->precision, Precision::high);
}

TEST(Trainer, Float64ComputesAndKeepsMomentsInFloat64) {
  const TextData data = two_texts();
  Trainer t = trainer(small_run({{"train.dtype", "float64"}}), data, "dcmha");
  Trainer narrow = trainer(small_run(), data, "dcmha");
  EXPECT_EQ(t.model().parameters()[0].scalar_type(), at::kDouble);
  const double loss = t.step().loss, single = narrow.step().loss;
  EXPECT_NE(loss, single);
  EXPECT_NEAR(loss, single, 1e-5);
}

TEST(Trainer, EvaluationsSpreadTheirWindowsAndTheLastTakesMore) {
  const TextData data = two_texts();  // 650 validation tokens: 40 windows of 16
  const RunConfig run = small_run({{"train.steps", "2"},
                                   {"train.eval_windows", "4"},
                                   {"train.eval_every", "1"},
                                   {"train.final_eval_windows", "0"}});
  ASSERT_EQ(num_eval_windows(*data.validation, 16), 40);
  Trainer t = trainer(run, data);
  const ScoredTokens held{*data.validation, data.token_bytes, 16, false};
  const auto expect = [&](const EvalRecord& got, const std::vector<int64_t>& windows) {
    const WindowScore wanted = score_windows(t.model(), held, windows, {4});
    EXPECT_EQ(got.loss, wanted.loss);
    EXPECT_EQ(got.windows, static_cast<int64_t>(windows.size()));
    EXPECT_EQ(got.tokens, 16 * got.windows);
    EXPECT_EQ(got.bytes, got.tokens);  // of one byte each
  };
  const TrainResult result = [&] {
    t.step();
    expect(t.evaluate(), {0, 10, 20, 30});
    return train_model(t, {});
  }();
  expect(result.evals.back(), spread_windows(40, 40));
  Trainer few = trainer(small_run({{"train.steps", "1"}, {"train.final_eval_windows", "3"}}), data);
  EXPECT_EQ(train_model(few, {}).evals.back().windows, 3);
}

TEST(Trainer, AveragedWeightsAreComparedByAsManyWindowsAtEachStep) {
  const TextData data = two_texts();
  Trainer t =
      trainer(small_run({{"train.steps", "2"}, {"train.eval_windows", "4"}, {"train.average", "ema:0.5"}}), data);
  const EvalRecord last = train_model(t, {}).evals.back();
  ASSERT_TRUE(last.average);
  const WeightAverage::Applied averaged(t.average());
  const ScoredTokens held{*data.validation, data.token_bytes, 16, false};
  EXPECT_EQ(last.average_compared, score_windows(t.model(), held, std::vector<int64_t>{0, 10, 20, 30}, {4}).loss);
  EXPECT_NE(last.average_compared, last.average->loss);
  EXPECT_NE(last.average_compared, last.compared);
}

TEST(Trainer, EveryBudgetEndsWithTheFinalEvaluation) {
  const TextData data = two_texts();
  for (const char* every : {"1", "3", "0"}) {
    Trainer t = trainer(small_run({{"train.steps", "7"}, {"train.eval_every", every}}), data);
    const TrainResult result = train_model(t, {});
    std::vector<int64_t> steps;
    for (const EvalRecord& r : result.evals) steps.push_back(r.step);
    EXPECT_EQ(steps.back(), 7);
    if (std::string(every) == "3") {
      EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 7}));
    }
    if (std::string(every) == "1") {
      EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
    }
  }
}

// The tokens that each step reads: only their rows of the embedding get a gradient.
std::vector<std::vector<int64_t>> tokens_seen(Overrides seeds) {
  for (const auto& size : {std::pair("train.batch_size", "1"), std::pair("train.context", "4")})
    seeds.emplace_back(size);
  const RunConfig run = small_run(seeds);
  const TextData data = two_texts();
  Model model(run.model_config(data.tokenizer->vocabulary_size()));
  model->initialize(static_cast<uint64_t>(run.train.seed));
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
  const RunConfig run = small_run({{"train.steps", "3"}});
  TextData data = two_texts();
  Trainer packed = trainer(run, data);
  data.documents_apart = true;
  Trainer apart = trainer(run, data);
  EXPECT_NE(packed.step().loss, apart.step().loss);
  EXPECT_NE(packed.evaluate().loss, apart.evaluate().loss);
}

// With no gradient but 0 a step shows what decays and how fast.
TEST(Optimizer, AStepWithoutGradientShrinksWhatDecaysAndNothingElse) {
  Model model = fresh(tiny({{"block", "parallel"}}, {{"mechanism", "dcmha"}, {"static", true}, {"bias", true}}));
  std::map<std::string, Tensor> before;
  for (const auto& item : model->named_parameters()) before[item.key()] = item.value().detach().clone();
  Optimizer optimizer(*model, {.weight_decay = 0.5, .learning_rate = 0.1});
  for (Tensor p : model->parameters()) p.mutable_grad() = at::zeros_like(p);
  optimizer.step();
  int64_t shrunk = 0;
  for (const auto& item : model->named_parameters()) {
    const bool decays = model->decays(item.key(), item.value());
    const Tensor wanted = decays ? before[item.key()] * (1 - 0.1 * 0.5) : before[item.key()];
    EXPECT_TRUE(at::allclose(item.value(), wanted, 1e-6, 0)) << item.key();
    shrunk += decays;
  }
  EXPECT_EQ(shrunk, 2 * (4 + 2 + 2) + 1);  // projections, feed-forward, generator of both layers; the output
}

TEST(Optimizer, ClipScalesTheWholeGradient) {
  Model model = fresh(tiny());
  Optimizer optimizer(*model, {});
  for (Tensor p : model->parameters()) p.mutable_grad() = at::ones_like(p);
  const auto norm = [&] { return optimizer.gradient_norm().item<double>(); };
  const double before = norm();
  optimizer.clip(0, before);
  EXPECT_EQ(norm(), before);
  EXPECT_NEAR(before, std::sqrt(static_cast<double>(model->num_parameters())), 1e-3);
  optimizer.clip(1.0, before);
  EXPECT_NEAR(norm(), 1.0, 1e-4);
}

TEST(Optimizer, DropsWhatWasPrepared) {
  Model model = fresh(tiny());
  model->prepare(WeightType::int8);
  Optimizer optimizer(*model, {});
  EXPECT_GT(model->named_parameters()["lm_head.weight"].numel(), 0);
  ops::token_loss(model->forward(at::zeros({1, 3}, at::kLong)), at::zeros({1, 3}, at::kLong)).backward();
}

TEST(Optimizer, FrozenParametersStay) {
  Model model = fresh(tiny());
  Optimizer optimizer(*model, {});
  model->parameters()[0].mutable_grad() = at::ones_like(model->parameters()[0]);
  const Tensor other = model->parameters()[1].detach().clone(), own = model->parameters()[0].detach().clone();
  optimizer.step();
  EXPECT_TRUE(model->parameters()[1].equal(other));
  EXPECT_FALSE(model->parameters()[0].equal(own));
  optimizer.zero_grad();
  EXPECT_FALSE(model->parameters()[0].grad().defined());
}

}  // namespace
}  // namespace motet
