// Training by hidden tokens.
#include "motet/train/objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/data/builtin.h"
#include "motet/mechanisms/contender.h"
#include "motet/train/loss.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

const Overrides kMasked{{"train.objective", "masked"}, {"model.causal", "false"}};

Overrides masked_with(const Overrides& more) {
  Overrides all = kMasked;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Tensor> after_one_step(const Overrides& more, const TextData& data) {
  Trainer t = trainer(small_run(masked_with(more)), data);
  t.step();
  std::vector<Tensor> all;
  for (const Tensor& p : t.model().parameters()) all.push_back(p.grad().clone());
  return all;
}

// Micro batches have unlike numbers of hidden tokens; each token counts as much as any other.
TEST(Objective, TheGradientOfPartsIsThatOfTheWholeBatch) {
  const TextData data = two_texts();
  const Overrides common{{"train.batch_size", "7"},
                         {"train.dtype", "float64"},
                         {"model.head", "masked"},
                         {"model.norm_place", "post"},
                         {"train.clip", "0"}};
  const auto with = [&](const Overrides& more) {
    Overrides all = common;
    all.insert(all.end(), more.begin(), more.end());
    return after_one_step(all, data);
  };
  const std::vector<Tensor> whole = with({});
  for (const Overrides& parts :
       {Overrides{{"train.micro_batch_size", "1"}}, Overrides{{"train.micro_batch_size", "3"}},
        Overrides{{"train.loss_rows", "4"}}, Overrides{{"train.micro_batch_size", "2"}, {"train.loss_rows", "5"}},
        Overrides{{"train.recompute", "block"}}}) {
    const std::vector<Tensor> own = with(parts);
    ASSERT_EQ(own.size(), whole.size());
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_LE((own[i] - whole[i]).abs().max().item<double>(), 1e-12) << parts[0].first << parts[0].second << i;
  }
}

// The loss of the first step once more: of the batch's rows, hidden by the same draws, over the hidden tokens alone.
TEST(Objective, TheLossIsOverHiddenTokensAlone) {
  const TextData data = two_texts();
  const RunConfig run = small_run(masked_with({{"train.dtype", "float64"}, {"model.initializer_range", "0.5"}}));
  Trainer t = trainer(run, data);
  const ModelConfig& config = t.model().config();
  EXPECT_EQ(config.vocab_size, data.tokenizer->vocabulary_size() + 1);
  Batches batches(*data.train, {.batch_size = 4, .context = 16, .seed = 0});
  for (const int64_t step : {0, 1}) {
    Batch batch = batches.batch(step);
    const Batch shown = batch;
    std::vector<uint64_t> rows;
    for (int64_t row = 0; row < 4; ++row) rows.push_back(static_cast<uint64_t>(4 * step + row));
    training_masks(config, data.tokenizer.get(), run.train)->hide(batch, rows);
    const TokenTensors tokens = as_tensors(batch);
    const Tensor likely = t.model().forward(tokens.inputs).log_softmax(-1);
    double sum = 0;
    int64_t hidden = 0, masks = 0;
    for (int64_t i = 0; i < 64; ++i) {
      const size_t at = static_cast<size_t>(i);
      masks += batch.inputs[at] == data.tokenizer->vocabulary_size();
      if (batch.targets[at] == kLeftOut) continue;
      ++hidden, sum -= likely[i / 16][i % 16][shown.inputs[at]].item<double>();
    }
    EXPECT_GT(masks, 0);
    EXPECT_NEAR(t.step().loss, sum / static_cast<double>(hidden), 1e-10) << step;
  }
}

TEST(Objective, ValidationHidesTheSameTokensEveryTimeWhateverTheTraining) {
  const TextData data = two_texts();
  Trainer first = trainer(small_run(kMasked), data),
          other = trainer(small_run(masked_with({{"train.data_seed", "9"}, {"train.mask_whole_words", "true"}})), data);
  const EvalRecord a = first.evaluate(), b = other.evaluate();
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(first.evaluate().loss, a.loss);
  // A window's masks are those of its number, whichever windows are scored with it.
  const ModelConfig& config = first.model().config();
  const ScoredTokens held{*data.validation, {}, 16, false, scored_masks(config, data.tokenizer.get())};
  const Batch pair = scored_batch(held, std::vector<int64_t>{2, 5}),
              alone = scored_batch(held, std::vector<int64_t>{5});
  EXPECT_TRUE(std::equal(alone.inputs.begin(), alone.inputs.end(), pair.inputs.begin() + 16));
  EXPECT_NE(first.step().loss, other.step().loss);  // training does differ
}

TEST(Objective, WholeWordsAreThoseOfTheTokenizer) {
  const TextData data = two_texts();
  const RunConfig run = small_run(masked_with({{"train.mask_whole_words", "true"}}));
  const ModelConfig config = run.model_config(vocabulary_for(*data.tokenizer, run.train));
  Batches batches(*data.train, {.batch_size = 50, .context = 16, .seed = 0});
  Batch batch = batches.batch(0);
  const Batch shown = batch;
  std::vector<uint64_t> rows;
  for (uint64_t row = 0; row < 50; ++row) rows.push_back(row);
  training_masks(config, data.tokenizer.get(), run.train)->hide(batch, rows);
  const int64_t space = data.tokenizer->encode(" ")[0];
  int64_t hidden = 0;
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    hidden += batch.targets[i] != kLeftOut;
    if (i % 16 == 0 || shown.inputs[i] == space) continue;
    EXPECT_EQ(batch.targets[i] == kLeftOut, batch.targets[i - 1] == kLeftOut) << i;
  }
  EXPECT_GT(hidden, 50);
}

TEST(Objective, TheAccuracyIsThatOfTheMostLikelyTokens) {
  const TextData data = two_texts();
  Trainer t = trainer(small_run(masked_with({{"model.initializer_range", "0.5"}})), data);
  const ScoredTokens held{*data.validation, {}, 16, false, scored_masks(t.model().config(), data.tokenizer.get())};
  const std::vector<int64_t> which{0, 1, 2, 3, 4};
  const TokenTensors tokens = as_tensors(scored_batch(held, which));
  at::NoGradGuard no_grad;
  const Tensor best = t.model().forward(tokens.inputs).argmax(-1);
  int64_t right = 0, all = 0;
  for (int64_t i = 0; i < 80; ++i) {
    const int64_t target = tokens.targets[i / 16][i % 16].item<int64_t>();
    all += target != kLeftOut, right += target == best[i / 16][i % 16].item<int64_t>();
  }
  EXPECT_GT(all, 0);
  EXPECT_LT(all, 40) << "tokens that no mask hides are left out";
  for (const AtOnce& at_once : {AtOnce{2}, AtOnce{2, 7}}) {
    const WindowScore score = score_windows(t.model(), held, which, at_once);
    EXPECT_EQ(score.right, right);
    EXPECT_EQ(score.tokens, all);
  }
}

TEST(Objective, WhatDoesNotGoTogetherIsNamed) {
  const TextData data = two_texts();
  const auto refusal = [&](const Overrides& set, const TextData& of) {
    return message_of<UsageError>([&] { trainer(small_run(set), of); });
  };
  EXPECT_EQ(refusal({{"model.causal", "false"}}, data),
            "train.objective: next with model.causal = false, whose tokens see their targets, want masked");
  EXPECT_EQ(refusal({{"train.objective", "masked"}}, data),
            "train.objective: masked with model.causal = true, which hides what follows, want causal = false");
  TextData examples = data;
  examples.train = std::make_shared<ExampleRows>(
      std::vector<Example>{{{1, 2, 3}, {false, false, true}}, {{1, 2, 3}, {false, false, true}}}, 16, "x");
  EXPECT_EQ(refusal(kMasked, examples),
            "train.objective: masked: two texts has examples, whose answers alone are learned, want a text");
  Model full = fresh(tiny({{"causal", false}}, {}, data.tokenizer->vocabulary_size()));
  const int64_t own = data.tokenizer->vocabulary_size();
  EXPECT_EQ(message_of<UsageError>([&] { Trainer(full, data, small_run(kMasked).train); }),
            text("train.objective: masked: the tokenizer has no [MASK] or <mask> and the model's ", own,
                 " tokens leave none beyond it, want a model of at least ", own + 1));
}

// 12 heads of width 26 against keys of 104: hidden size 312, RoBERTa+ Tiny's.
TEST(Objective, KeysMayBeWiderThanHeads) {
  const TextData data = two_texts();
  RunConfig run = small_run(masked_with({{"model.hidden_size", "312"},
                                         {"model.num_layers", "1"},
                                         {"train.learning_rate", "1e-3"},
                                         {"train.batch_size", "32"},
                                         {"train.schedule", "constant"}}));
  run.attention_given = {{"num_heads", 12}, {"key_dim", 104}};
  Trainer t = trainer(run, data, "key_size");
  const auto p = t.model().named_parameters();
  EXPECT_EQ(p["model.layers.0.self_attn.k_proj.weight"].sizes(), (std::vector<int64_t>{12 * 104, 312}));
  EXPECT_EQ(p["model.layers.0.self_attn.v_proj.weight"].sizes(), (std::vector<int64_t>{12 * 26, 312}));
  const double first = t.evaluate().loss;
  for (int step = 0; step < 35; ++step) t.step();
  EXPECT_LT(t.evaluate().loss, first - 0.3);
}

// The least loss, in nats a hidden token, that a token's own place allows, without what stands around it: of the token
// behind each of what may be seen there (the mask, another token, itself).
double least_without_context(const TokenSequence& tokens, int64_t vocabulary) {
  std::vector<double> part(static_cast<size_t>(vocabulary));
  for (const int64_t id : tokens.slice(0, tokens.size())) part[static_cast<size_t>(id)] += 1;
  for (double& p : part) p /= static_cast<double>(tokens.size());
  const double drawn = kOtherOfHidden / static_cast<double>(vocabulary), kept = 1 - kMaskOfHidden - kOtherOfHidden;
  double nats = 0;
  for (size_t seen = 0; seen < part.size(); ++seen) {
    if (part[seen] > 0) nats -= kMaskOfHidden * part[seen] * std::log(part[seen]);
    for (size_t target = 0; target < part.size(); ++target) {
      const double both = drawn * part[target] + (seen == target ? kept * part[seen] : 0);
      if (both > 0) nats -= both * std::log(both / (drawn + kept * part[seen]));
    }
  }
  return nats;
}

// Better than any model whose attention hears nothing could be, and far from one that sees what it is asked.
TEST(Objective, EveryMechanismLearnsFromWhatStandsAround) {
  const RunConfig run = small_run(masked_with({{"train.steps", "450"},
                                               {"train.context", "32"},
                                               {"train.batch_size", "32"},
                                               {"train.learning_rate", "0.01"},
                                               {"train.eval_every", "450"},
                                               {"train.final_eval_windows", "200"},
                                               {"train.diagnose_every", "0"},
                                               {"model.hidden_size", "32"},
                                               {"model.num_layers", "1"}}));
  const TextData data = load_text_data(run);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // for so small a model
  const double bound = least_without_context(*data.train, data.tokenizer->vocabulary_size());
  EXPECT_NEAR(bound, 3.07, 0.03);
  std::vector<std::string> mechanisms = mechanism_names();
  mechanisms.push_back("differential_v2");
  for (const std::string& mechanism : mechanisms) {
    RunConfig own = run;
    own.attention_given = parse_contender(mechanism, "test");
    Model model(own.model_config(vocabulary_for(*data.tokenizer, own.train)));
    model->initialize(1);
    Trainer t(model, data, own.train);
    const double untrained = t.evaluate().loss;
    const EvalRecord last = train_model(t, {}).evals.back();
    EXPECT_GT(untrained, bound + 0.5) << mechanism;
    EXPECT_LT(last.loss, bound - 0.2) << mechanism;
    EXPECT_GT(last.loss, 1) << mechanism;
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace motet
