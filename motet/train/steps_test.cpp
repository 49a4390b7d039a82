// What a step computes: whatever memory it saves, whatever was saved of the run before it, it is the same step.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "motet/core/testing.h"
#include "motet/models/cost.h"
#include "motet/train/loss.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

// Options on which a step's way depends, one more and one fewer.
const std::vector<Overrides>& ways() {
  static const std::vector<Overrides> all{{},
                                          {{"train.optimizer", "adam"}, {"train.dtype", "float64"}},
                                          {{"train.optimizer", "sgd"}, {"train.skip_outliers", "4"}},
                                          {{"train.optimizer", "muon"}, {"train.schedule", "wsd"}},
                                          {{"train.dtype", "bfloat16"}, {"train.recompute", "block"}},
                                          {{"train.micro_batch_size", "3"}, {"train.loss_rows", "5"}},
                                          {{"train.tokens", "640"}, {"train.z_loss", "1e-3"}},
                                          {{"train.dtype", "float16"}, {"train.dropout", "0.2"}},
                                          {{"train.average", "last:2"}, {"train.checkpoint_every", "3"}},
                                          {{"train.average", "ema:0.9"}},
                                          {{"train.objective", "masked"},
                                           {"model.causal", "false"},
                                           {"train.micro_batch_size", "3"},
                                           {"train.mask_whole_words", "true"}}};
  return all;
}

std::vector<Tensor> parameters_of(Trainer& trainer) {
  std::vector<Tensor> all;
  for (const Tensor& p : trainer.model().parameters()) all.push_back(p.detach().clone());
  return all;
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << what << ", parameter " << i;
}

TEST(Trainer, ARestoredOneMakesTheSameSteps) {
  const TextData data = two_texts();
  for (const Overrides& way : ways()) {
    const RunConfig run = small_run(way);
    const std::string what = way.empty() ? "adamw" : way[0].first + " " + way[0].second;
    for (const int64_t stop : {1, 4, 7}) {
      Trainer whole = trainer(run, data, "dcmha");
      for (int64_t i = 0; i < stop; ++i) whole.step();
      Trainer restored = trainer(run, data, "dcmha");
      {
        at::NoGradGuard no_grad;
        const auto from = parameters_of(whole);
        auto to = restored.model().parameters();
        for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
        const auto saved = whole.tensors(), own = restored.tensors();
        ASSERT_EQ(saved.size(), own.size());
        for (size_t i = 0; i < own.size(); ++i) {
          ASSERT_EQ(own[i].first, saved[i].first);
          own[i].second.copy_(saved[i].second);
        }
      }
      restored.restore(nlohmann::json::parse(whole.state().dump()), restored.tensors());
      EXPECT_EQ(restored.evaluation_due(), whole.evaluation_due());
      EXPECT_EQ(restored.seconds(), whole.seconds());
      for (int i = 0; i < 3; ++i) {
        const StepRecord a = whole.step(), b = restored.step();
        EXPECT_EQ(a.step, b.step);
        EXPECT_EQ(a.loss, b.loss) << what;
        EXPECT_EQ(a.learning_rate, b.learning_rate) << what;
        EXPECT_EQ(a.gradient_norm, b.gradient_norm) << what;
        EXPECT_EQ(whole.evaluation_due(), restored.evaluation_due());
        EXPECT_EQ(whole.checkpoint_due(), restored.checkpoint_due());
      }
      EXPECT_EQ(restored.state().at("outliers"), whole.state().at("outliers")) << what;
      expect_equal(parameters_of(whole), parameters_of(restored), what);
    }
  }
}

// One that a signal stopped in its evaluation keeps the checkpoint of that step, with the loss, when it goes on.
TEST(Trainer, AnEvaluationThatIsMadeAgainEndsInItsCheckpoint) {
  const TextData data = two_texts();
  const RunConfig run = small_run({{"train.eval_every", "2"}, {"train.checkpoint_every", "2"}});
  Trainer t = trainer(run, data), interrupted = trainer(run, data), evaluated = trainer(run, data);
  for (int i = 0; i < 2; ++i) t.step();
  interrupted.restore(t.state(), interrupted.tensors());
  EXPECT_TRUE(interrupted.evaluation_due() && interrupted.checkpoint_due());
  t.evaluate();
  evaluated.restore(t.state(), evaluated.tensors());
  EXPECT_FALSE(evaluated.evaluation_due() || evaluated.checkpoint_due());
}

TEST(Trainer, ADiagnosisChangesNothing) {
  const TextData data = two_texts();
  for (const Overrides& own : ways())
    for (const char* mechanism : {"dcmha", "differential"}) {
      const std::string what = text(own.empty() ? "adamw" : own[0].first + " " + own[0].second, ", ", mechanism);
      Overrides way = own;
      way.emplace_back("train.diagnose_every", "0");
      Trainer without = trainer(small_run(way), data, mechanism);
      way.back().second = "1";
      Trainer with = trainer(small_run(way), data, mechanism);
      for (int step = 1; step <= 3; ++step) {
        EXPECT_EQ(without.step().loss, with.step().loss) << what;
        EXPECT_FALSE(without.diagnosis_due());
        ASSERT_TRUE(with.diagnosis_due());
        const DiagnosisRecord record = with.diagnose();
        EXPECT_EQ(record.step, step);
        EXPECT_EQ(record.layers.size(), 2u) << what;
        EXPECT_EQ(record.update_ratios.size(), 5u) << what;
      }
      expect_equal(parameters_of(without), parameters_of(with), what);
      const auto a = without.tensors(), b = with.tensors();
      for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second)) << what << ", " << a[i].first;
    }
}

TEST(Trainer, DiagnosesComeAfterTheirStepsAlone) {
  const TextData data = two_texts();
  Trainer t = trainer(small_run({{"train.steps", "7"}, {"train.diagnose_every", "3"}}), data);
  std::vector<int64_t> steps;
  TrainEvents events;
  events.diagnosed = [&](const DiagnosisRecord& r) { steps.push_back(r.step); };
  train_model(t, events);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6}));
}

// Of the same trainer's parameters before and after the step.
TEST(Trainer, TheSizeOfAnUpdateIsThatOfWhatTheStepChanged) {
  const TextData data = two_texts();
  for (const char* optimizer : {"adamw", "adam", "sgd", "muon"}) {
    Trainer t = trainer(small_run({{"train.optimizer", optimizer}, {"train.diagnose_every", "2"}}), data, "dcmha");
    t.step();
    const std::vector<Tensor> before = parameters_of(t);
    t.step();
    std::map<std::string, std::pair<double, double>> squares;
    size_t i = 0;
    for (const auto& item : t.model().named_parameters()) {
      auto& [change, weight] = squares[model_part(item.key())];
      change += (item.value().detach() - before[i]).to(at::kDouble).square().sum().item<double>();
      weight += before[i++].to(at::kDouble).square().sum().item<double>();
    }
    const auto ratios = t.diagnose().update_ratios;
    ASSERT_EQ(ratios.size(), squares.size()) << optimizer;
    for (const auto& [part, sums] : squares)
      EXPECT_NEAR(ratios.at(part), std::sqrt(sums.first / sums.second), 1e-5 * ratios.at(part))
          << optimizer << " " << part;
    t.step();
    EXPECT_TRUE(t.diagnose().update_ratios.empty());
  }
}

TEST(Trainer, SgdWithoutMomentumGoesAlongTheGradient) {
  const TextData data = two_texts();
  const Overrides plain{
      {"train.optimizer", "sgd"}, {"train.momentum", "0"}, {"train.weight_decay", "0"}, {"train.clip", "0"}};
  Trainer t = trainer(small_run(plain), data);
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> wanted = parameters_of(t);
    const double rate = t.step().learning_rate;
    size_t at = 0;
    for (const Tensor& p : t.model().parameters())
      EXPECT_TRUE(at::allclose(p, wanted[at++] - rate * p.grad(), 1e-6, 1e-8)) << i;
  }
}

TEST(Trainer, StateHasNoNumberOfFrozenParameters) {
  const TextData data = two_texts();
  const RunConfig run = small_run();
  Model model(run.model_config(data.tokenizer->vocabulary_size()));
  model->initialize(1);
  int64_t learning = 0;
  for (auto& item : model->named_parameters()) {
    item.value().requires_grad_(item.key().find("mlp") == std::string::npos);
    learning += item.value().requires_grad();
  }
  Trainer t(model, data, run.train);
  EXPECT_EQ(std::ssize(t.tensors()), 3 * learning);
  for (const auto& [name, tensor] : t.tensors()) EXPECT_EQ(name.find("mlp"), std::string::npos) << name;
}

// The gradients of one batch of 5 rows of 16 tokens.
std::vector<Tensor> gradients_of(const Overrides& way, const std::string& mechanism, double* loss) {
  Overrides set{{"train.batch_size", "5"}, {"train.optimizer", "sgd"}, {"train.clip", "0"}};
  set.insert(set.end(), way.begin(), way.end());
  const TextData data = two_texts();
  Trainer t = trainer(small_run(set), data, mechanism);
  *loss = t.step().loss;
  std::vector<Tensor> all;
  for (const Tensor& p : t.model().parameters()) all.push_back(p.grad());
  return all;
}

TEST(Trainer, MicroBatchesAndPartsOfTheLossGiveTheGradientsOfTheBatch) {
  for (const char* extra : {"0", "0.1"})
    for (const Overrides& way : std::vector<Overrides>{{{"train.micro_batch_size", "2"}},
                                                       {{"train.loss_rows", "7"}},
                                                       {{"train.loss_rows", "1000"}},
                                                       {{"train.micro_batch_size", "3"}, {"train.loss_rows", "16"}}})
      for (const char* tied : {"true", "false"}) {
        const Overrides common{{"train.dtype", "float64"},
                               {"train.label_smoothing", extra},
                               {"train.z_loss", extra},
                               {"train.dropout", extra},
                               {"model.tie_embeddings", tied}};
        Overrides own = common;
        own.insert(own.end(), way.begin(), way.end());
        double a = 0, b = 0;
        const auto wanted = gradients_of(common, "dcmha", &a), made = gradients_of(own, "dcmha", &b);
        EXPECT_NEAR(a, b, 1e-12);
        for (size_t i = 0; i < wanted.size(); ++i)
          EXPECT_TRUE(at::allclose(made[i], wanted[i], 1e-9, 1e-12)) << way[0].first << " parameter " << i;
      }
}

// 30 examples of two lengths whose last third is learned, in rows of 16.
TextData examples_data() {
  TextData data = two_texts();
  const std::vector<int64_t> ids = data.train->slice(0, 400);
  std::vector<Example> all;
  for (size_t i = 0; i < 30; ++i) {
    const size_t length = i % 2 == 0 ? 6 : 11;
    Example one;
    for (size_t j = 0; j < length; ++j) {
      one.ids.push_back(static_cast<int32_t>(ids[i * 12 + j]));
      one.learned.push_back(3 * j >= 2 * length);
    }
    all.push_back(one);
  }
  data.train = data.validation = std::make_shared<ExampleRows>(all, 16, "examples");
  data.documents_apart = true;
  return data;
}

TEST(Trainer, OfExamplesTheAnswersAloneAreLearned) {
  const TextData data = examples_data();
  for (const Overrides& more :
       std::vector<Overrides>{{}, {{"train.label_smoothing", "0.1"}, {"train.z_loss", "0.01"}}}) {
    std::vector<std::vector<Tensor>> made;
    for (const Overrides& way : std::vector<Overrides>{{},
                                                       {{"train.micro_batch_size", "1"}},
                                                       {{"train.loss_rows", "7"}},
                                                       {{"train.micro_batch_size", "3"}, {"train.loss_rows", "16"}}}) {
      Overrides set{
          {"train.dtype", "float64"}, {"train.optimizer", "sgd"}, {"train.clip", "0"}, {"train.batch_size", "5"}};
      set.insert(set.end(), more.begin(), more.end());
      set.insert(set.end(), way.begin(), way.end());
      Trainer t = trainer(small_run(set), data, "dcmha");
      // By hand, of the same batch: the mean over all of its learned targets.
      const TokenTensors batch = as_tensors(Batches(*data.train, {5, 16, 0, true}).batch(0));
      const Tensor logits = t.model().forward(batch.inputs, batch.documents).flatten(0, 1);
      const Tensor targets = batch.targets.flatten(), kept = (targets != kLeftOut).nonzero().squeeze(1);
      const double wanted =
          at::cross_entropy_loss(logits.index_select(0, kept), targets.index_select(0, kept)).item<double>();
      EXPECT_LT(kept.size(0), targets.size(0) / 2);
      EXPECT_NEAR(t.step().loss, wanted, 1e-12);
      made.emplace_back();
      for (const Tensor& p : t.model().parameters()) made.back().push_back(p.grad());
      for (size_t i = 0; i < made[0].size(); ++i)
        EXPECT_TRUE(at::allclose(made.back()[i], made[0][i], 1e-9, 1e-12)) << i;
    }
  }
}

TEST(Trainer, AValidationOfExamplesCountsAnswersAlone) {
  const TextData data = examples_data();
  Trainer t = trainer(small_run({{"train.dtype", "float64"}}), data);
  const EvalRecord record = t.evaluate();
  const auto windows = spread_windows(num_eval_windows(*data.validation, 16), 64);
  const TokenTensors all = as_tensors(windows_at(*data.validation, 16, windows, true));
  const Tensor targets = all.targets.flatten(), kept = (targets != kLeftOut).nonzero().squeeze(1);
  const Tensor each = at::cross_entropy_loss(t.model().forward(all.inputs, all.documents).flatten(0, 1), targets, {},
                                             at::Reduction::None);
  EXPECT_EQ(record.tokens, kept.size(0));
  EXPECT_NEAR(record.loss, each.index_select(0, kept).mean().item<double>(), 1e-12);
  // The standard error of a ratio: windows count by their learned targets.
  const auto rows = static_cast<int64_t>(windows.size());
  const Tensor sums = each.view({rows, 16}).sum(1), counts = (all.targets != kLeftOut).sum(1).to(at::kDouble);
  const double n = static_cast<double>(rows), squares = (sums - counts * record.loss).square().sum().item<double>();
  EXPECT_NEAR(record.error, std::sqrt(n / (n - 1) * squares) / static_cast<double>(record.tokens), 1e-12);
}

// Rotary attention sees distances alone, the slack form of coca places too.
TEST(Trainer, ExamplesBeginAtRandomPositions) {
  const TextData data = two_texts();
  const auto losses = [&](const char* mechanism, const Overrides& more) {
    Overrides set{{"train.dtype", "float64"}, {"model.attention.form", "slack"}};
    if (std::string(mechanism) != "coca") set.pop_back();
    set.insert(set.end(), more.begin(), more.end());
    Trainer t = trainer(small_run(set), data, mechanism);
    std::vector<double> out;
    for (int i = 0; i < 3; ++i) out.push_back(t.step().loss);
    out.push_back(t.evaluate().loss);
    return out;
  };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (std::abs(a[i] - b[i]) > 1e-9) return false;
    return true;
  };
  const Overrides moved{{"train.position_offset", "1000"}};
  EXPECT_TRUE(near(losses("softmax", moved), losses("softmax", {})));
  EXPECT_FALSE(near(losses("coca", moved), losses("coca", {})));
  EXPECT_TRUE(near(losses("coca", {{"train.position_offset", "0"}}), losses("coca", {})));
  // However the batch is cut.
  EXPECT_TRUE(near(losses("coca", {{"train.position_offset", "1000"}, {"train.micro_batch_size", "3"}}),
                   losses("coca", moved)));
  // A model that has not stepped is scored from position 0.
  const auto scored = [&](const Overrides& set) { return trainer(small_run(set), data, "coca").evaluate().loss; };
  EXPECT_EQ(scored(moved), scored({}));
  EXPECT_EQ(message_of<UsageError>([&] { trainer(small_run({moved[0], {"model.positions", "learned"}}), data); }),
            "train.position_offset: 1000 with a table of positions, want 0 or model.positions = rope");
}

TEST(Trainer, DropoutIsAnotherOfEachPlaceAndStep) {
  const TextData data = two_texts();
  const RunConfig run = small_run({{"train.dropout", "0.5"}, {"train.learning_rate", "0"}});
  Trainer t = trainer(run, data);
  Trainer same = trainer(run, data);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(t.step().loss, same.step().loss);
  // With weights that stay, losses of one batch differ by what is left out alone.
  const TrainOptions& train = run.train;
  const TokenTensors batch = as_tensors(Batches(*data.train, {4, 16, 0}).batch(0));
  std::set<double> losses;
  for (uint64_t step = 0; step < 5; ++step)
    losses.insert(
        training_loss(t.model(), batch, train, {.p = 0.5, .key = splitmix64(1, step)}).cross_entropy.item<double>());
  EXPECT_EQ(losses.size(), 5u);
  const auto one_batch = [&](const Overrides& more) {
    Overrides set{{"train.dropout", "0.5"}, {"train.learning_rate", "0"}};
    set.insert(set.end(), more.begin(), more.end());
    TextData row = data;  // one window alone: each step reads the same
    row.train = std::make_shared<TokenPart>(data.train, 0, 17);
    const RunConfig own = small_run(set);
    Trainer trainer = testing::trainer(own, row);
    std::set<double> seen;
    for (int i = 0; i < 4; ++i) seen.insert(trainer.step().loss);
    return seen.size();
  };
  EXPECT_EQ(one_batch({}), 4u);
  EXPECT_EQ(one_batch({{"train.dropout", "0"}}), 1u);
  // A layer leaves out of what its attention adds, and others of what its feed-forward adds.
  const auto block = t.model().blocks()[0].ptr();
  const Tensor x = at::randn({2, 16, 16}), attended = at::randn({2, 16, 16});
  const Dropout drop{.p = 0.5, .key = 3};
  at::NoGradGuard no_grad;
  const Tensor h = x + ops::dropout(attended, drop.at(0)), added = block->after(h, at::zeros_like(h)) - h;
  EXPECT_TRUE(at::allclose(block->after(x, attended, drop), h + ops::dropout(added, drop.at(1)), 1e-4, 1e-5));
}

TEST(Trainer, RecomputedLayersGiveTheSameBits) {
  for (const char* dtype : {"float32", "bfloat16", "float64"})
    for (const char* mechanism : {"dcmha", "talking_heads", "differential"})
      for (const char* block : {"sequential", "parallel"}) {
        const Overrides common{{"train.dtype", dtype}, {"model.block", block}, {"train.dropout", "0.2"}};
        Overrides own = common;
        own.emplace_back("train.recompute", "block");
        double a = 0, b = 0;
        const auto wanted = gradients_of(common, mechanism, &a), made = gradients_of(own, mechanism, &b);
        EXPECT_EQ(a, b);
        expect_equal(wanted, made, text(dtype, " ", mechanism, " ", block));
      }
}

TEST(Trainer, RecomputedLayersLearnUnderAFrozenEmbedding) {
  const TextData data = two_texts();
  std::vector<std::vector<Tensor>> made;
  for (const char* recompute : {"none", "block"}) {
    const RunConfig run = small_run({{"train.recompute", recompute}});
    Model model(run.model_config(data.tokenizer->vocabulary_size()));
    model->initialize(1);
    model->named_parameters()["model.embed_tokens.weight"].requires_grad_(false);
    Trainer t(model, data, run.train);
    for (int i = 0; i < 2; ++i) t.step();
    made.push_back(parameters_of(t));
  }
  expect_equal(made[0], made[1], "frozen embedding");
}

TEST(TrainingLoss, AddsWhatItsOptionsSay) {
  Model model = fresh(tiny());
  const int64_t V = model->config().vocab_size;
  const Tensor ids = at::randint(V, {2, 6}, at::kLong), targets = at::randint(V, {2, 6}, at::kLong);
  const Tensor logits = model->forward(ids).detach().to(at::kDouble).flatten(0, 1);
  const Tensor lse = logits.logsumexp(-1);
  const auto smoothed = [&](double s) {
    return at::cross_entropy_loss(logits, targets.flatten(), {}, at::Reduction::Mean, -100, s).item<double>();
  };
  for (const double s : {0.0, 0.2})
    for (const double z : {0.0, 0.01}) {
      const TrainOptions train{.label_smoothing = s, .z_loss = z};
      const TrainingLoss loss = training_loss(*model, {ids, targets, {}}, train);
      EXPECT_NEAR(loss.cross_entropy.item<double>(), smoothed(0), 1e-5);
      EXPECT_NEAR(loss.objective.item<double>(), smoothed(s) + z * lse.square().mean().item<double>(), 1e-5)
          << s << " " << z;
    }
}

// ---- guards

TEST(Trainer, ANumberThatIsNoneInALayerIsNamedAndNothingIsStepped) {
  const TextData data = two_texts();
  for (const char* micro : {"0", "2"}) {
    Trainer t = trainer(small_run({{"train.micro_batch_size", micro}, {"model.num_layers", "3"}}), data);
    t.step();
    {
      at::NoGradGuard no_grad;
      t.model().named_parameters()["model.layers.1.mlp.down_proj.weight"][0][0] = NAN;
    }
    const auto before = t.state();
    const auto parameters = parameters_of(t);
    const std::string message = message_of<Diverged>([&] { t.step(); });
    EXPECT_TRUE(
        message.starts_with("step 2: the loss is nan; the first number that is not finite appears in layer 1; "
                            "the batch has documents "))
        << message;
    EXPECT_EQ(t.state(), before);
    const auto after = parameters_of(t);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].allclose(parameters[i], 0, 0, true));
  }
}

TEST(Trainer, AGradientThatIsNoNumberIsNamedByItsParameter) {
  const TextData data = two_texts();
  Trainer t = trainer(small_run({{"model.num_layers", "3"}}), data);
  for (const char* broken : {"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"})
    t.model().named_parameters()[broken].register_hook([](const Tensor& gradient) { return gradient * NAN; });
  const std::string message = message_of<Diverged>([&] { t.step(); });
  EXPECT_TRUE(
      message.starts_with("step 1: the gradient's norm is nan; the first number that is not finite appears in "
                          "the gradient of model.layers.1.mlp.down_proj.weight; the batch has documents "))
      << message;
  EXPECT_EQ(t.steps_done(), 0);
}

TEST(Trainer, ASkippedStepChangesNothingAndTooManyEndTheRun) {
  const TextData data = two_texts();
  Trainer t = trainer(small_run({{"train.steps", "400"}, {"train.skip_outliers", "1e-3"}}), data);
  std::vector<Tensor> before;
  nlohmann::json state;
  int64_t skipped = 0;
  const std::string message = message_of<Diverged>([&] {
    while (!t.done()) {
      before = parameters_of(t), state = t.state();
      const StepRecord record = t.step();
      if (!record.skipped) continue;
      ++skipped;
      EXPECT_GT(record.step, 128);
      EXPECT_EQ(metrics_record(record)["skipped"], true);
      expect_equal(before, parameters_of(t), "skipped");
    }
  });
  EXPECT_GE(skipped, 1);
  EXPECT_NE(message.find(text("step ", t.steps_done() + 1, ": ", skipped + 1, " steps were outliers, more than 1 %")),
            std::string::npos)
      << message;
  EXPECT_EQ(t.state(), state);  // the step that ends the run was not made
}

TEST(Trainer, NoDecayNamesParametersThatDoNotDecay) {
  const TextData data = two_texts();
  std::map<std::string, Tensor> kept[2];
  for (const bool excepted : {false, true}) {
    Overrides set{{"train.weight_decay", "1"}, {"train.optimizer", "sgd"}, {"train.learning_rate", "0.01"}};
    if (excepted) set.emplace_back("train.no_decay", "*.mlp.*,lm_head.weight");
    Trainer t = trainer(small_run(set), data);
    t.step();
    for (const auto& item : t.model().named_parameters()) kept[excepted][item.key()] = item.value().detach().clone();
  }
  for (const auto& [name, value] : kept[0]) {
    const bool own = name.find(".mlp.") != std::string::npos || name == "lm_head.weight";
    EXPECT_EQ(value.equal(kept[1][name]), !own) << name;
  }
  EXPECT_EQ(message_of<UsageError>([&] { trainer(small_run({{"train.no_decay", "mlp"}}), data); }),
            "train.no_decay: 'mlp' names no parameter, want for instance '*.mlp.*'");
}

}  // namespace
}  // namespace motet
