#include "motet/train/average.h"

#include "motet/core/testing.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

std::vector<Tensor> copies_of(const ModelImpl& model) {
  std::vector<Tensor> all;
  for (const Tensor& p : model.parameters()) all.push_back(p.detach().clone());
  return all;
}

// The weights of twenty steps and the average that is in the model while it is applied.
struct Averaged {
  std::vector<std::vector<Tensor>> weights;  // after each step
  std::vector<bool> checkpoints;
  std::vector<Tensor> average;
};

Averaged averaged(const std::string& how, const std::string& frozen = "") {
  const TextData data = two_texts();
  const RunConfig run = small_run({{"train.average", how}, {"train.checkpoint_every", "3"}, {"train.steps", "20"}});
  Model model(run.model_config(data.tokenizer->vocabulary_size()));
  model->initialize(1);
  if (!frozen.empty()) model->named_parameters()[frozen].requires_grad_(false);
  Trainer t(model, data, run.train);
  Averaged made;
  while (!t.done()) {
    t.step();
    made.weights.push_back(copies_of(t.model()));
    made.checkpoints.push_back(t.checkpoint_due());
  }
  {
    const WeightAverage::Applied applied(t.average());
    made.average = copies_of(t.model());
  }
  const std::vector<Tensor> after = copies_of(t.model());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].equal(made.weights.back()[i]));
  return made;
}

TEST(WeightAverage, AnEmaMovesAPartOfTheWayWithEachStep) {
  const Averaged made = averaged("ema:0.8");
  for (size_t i = 0; i < made.average.size(); ++i) {
    Tensor wanted = made.weights[0][i].to(at::kDouble);
    for (size_t step = 1; step < made.weights.size(); ++step)
      wanted = wanted * 0.8 + made.weights[step][i].to(at::kDouble) * 0.2;
    EXPECT_TRUE(at::allclose(made.average[i].to(at::kDouble), wanted, 1e-5, 1e-7)) << i;
  }
}

TEST(WeightAverage, TheLastCheckpointsAreAveraged) {
  const Averaged made = averaged("last:3");
  std::vector<size_t> steps;
  for (size_t step = 0; step < made.checkpoints.size(); ++step)
    if (made.checkpoints[step]) steps.push_back(step);
  ASSERT_EQ(steps, (std::vector<size_t>{2, 5, 8, 11, 14, 17, 19}));
  for (size_t i = 0; i < made.average.size(); ++i) {
    const Tensor wanted = (made.weights[14][i] + made.weights[17][i] + made.weights[19][i]) / 3;
    EXPECT_TRUE(at::allclose(made.average[i], wanted, 1e-5, 1e-7)) << i;
  }
}

TEST(WeightAverage, FrozenWeightsStayAsTheyAre) {
  const Averaged made = averaged("ema:0.5", "model.embed_tokens.weight");
  EXPECT_TRUE(made.average[0].equal(made.weights[0][0]));
}

TEST(WeightAverage, AnEvaluationScoresBoth) {
  const TextData data = two_texts();
  const RunConfig run = small_run({{"train.average", "ema:0.5"}});
  Trainer t = trainer(run, data);
  EXPECT_FALSE(t.evaluate().average.has_value());
  for (int i = 0; i < 5; ++i) t.step();
  const EvalRecord record = t.evaluate();
  ASSERT_TRUE(record.average.has_value());
  const WeightAverage::Applied applied(t.average());
  const auto windows = spread_windows(num_eval_windows(*data.validation, 16), run.train.eval_windows);
  const WindowScore alone = score_windows(t.model(), {*data.validation, data.token_bytes, 16, false}, windows, {4});
  EXPECT_EQ(alone.loss, record.average->loss);
  EXPECT_NE(alone.loss, record.loss);
}

TEST(WeightAverage, WrongWordsAreRefused) {
  for (const char* wrong :
       {"ema", "ema:", "ema:1", "ema:0", "ema:x", "ema:0.5x", "last:1", "last:101", "last:2.5", "swa"})
    EXPECT_EQ(
        message_of<UsageError>([&] { WeightAverage::copies(wrong); }),
        text("train.average: is '", wrong, "', want ema:D with D between 0 and 1, or last:N with N from 2 to 100"));
  EXPECT_EQ(WeightAverage::copies(""), 0);
  EXPECT_EQ(WeightAverage::copies("ema:0.999"), 1);
  EXPECT_EQ(WeightAverage::copies("last:5"), 5);
}

}  // namespace
}  // namespace motet
