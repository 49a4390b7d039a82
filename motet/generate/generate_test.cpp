#include "motet/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "motet/core/error.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

class Generate : public ::testing::Test {
 protected:
  std::string run(GenerateOptions options, const std::string& prompt = "ab") {
    return generate(*model_, tokenizer_, prompt, options)[0].text;
  }
  CharTokenizer tokenizer_{"abcdefghijk"};
  Model model_ = fresh(tiny());
};

TEST_F(Generate, GreedyIsTheArgmaxStepByStep) {
  const std::string text =
      run({.max_tokens = 20, .stop = {}, .sampler = {.temperature = 0}});  // past the context of 16
  ASSERT_EQ(text.size(), 20u);
  at::NoGradGuard no_grad;
  std::string all = "ab";
  size_t begin = 0;
  for (char c : text) {
    if (all.size() - begin > 16) begin = all.size() - 8;  // anew with the last half of the context
    const auto ids = tokenizer_.encode(std::string_view(all).substr(begin));
    const Tensor logits =
        model_->forward(at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0));
    const int32_t best = logits[0][-1].argmax().item<int32_t>();
    EXPECT_EQ(tokenizer_.decode({&best, 1}), std::string(1, c));
    all += c;
  }
}

TEST(GenerateLong, DynamicScalingHasOneBaseForTheWholeRequest) {
  at::NoGradGuard no_grad;
  const nlohmann::json dynamic{
      {"rope_scaling", "dynamic"}, {"rope_factor", 100.0}, {"rope_trained_length", 2}, {"num_heads", 1}};
  const CharTokenizer tokenizer("abcdefghijk");
  Model model = fresh(tiny({{"initializer_range", 0.3}}, dynamic));
  // Greedy choices for "ab" and ten more, each from all tokens before it, with positions scaled for `length`.
  const auto greedy = [&](int64_t length) {
    std::vector<int64_t> ids{0, 1};
    while (ids.size() < 12) {
      const Tensor hidden = model->hidden(at::tensor(ids, at::kLong).unsqueeze(0), length);
      ids.push_back(model->logits(hidden)[0][-1].argmax().item<int64_t>());
    }
    return tokenizer.decode(std::vector<int32_t>(ids.begin() + 2, ids.end()));
  };
  for (uint64_t seed = 1; seed < 50 && greedy(12) == greedy(0); ++seed) model->initialize(seed);
  ASSERT_NE(greedy(12), greedy(0)) << "no model's choices depend on the length";
  EXPECT_EQ(generate(*model, tokenizer, "ab", {.max_tokens = 10, .stop = {}, .sampler = {.temperature = 0}})[0].text,
            greedy(12));
}

TEST_F(Generate, SeedDecides) {
  const auto with = [&](uint64_t seed) {
    return run({.max_tokens = 40, .stop = {}, .sampler = {.temperature = 1.5, .seed = seed}});
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST_F(Generate, StopStringsEndTheTextAndNeverAppear) {
  const std::string whole = run({.max_tokens = 30, .stop = {}, .sampler = {.temperature = 1, .seed = 3}});
  const std::string stop = whole.substr(7, 3);
  std::string streamed;
  const std::string text =
      generate(*model_, tokenizer_, "ab", {.max_tokens = 30, .stop = {stop}, .sampler = {.temperature = 1, .seed = 3}},
               [&](int64_t, std::string_view part) { streamed += part; })[0]
          .text;
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(streamed, text);
}

TEST_F(Generate, PromptsThatCannotBeAreRefused) {
  EXPECT_THROW(run({}, ""), Error);
  EXPECT_THROW(run({}, "aaaaaaaaaaaaaaaaa"), Error);
  EXPECT_THROW(run({}, "xyz"), Error);
}

TEST_F(Generate, ASampleIsTheSameHoweverManyThereAre) {
  const auto samples = [&](int64_t count) {
    GenerateOptions options{.max_tokens = 24, .samples = count, .sampler = {.temperature = 1.2, .seed = 4}};
    return generate(*model_, tokenizer_, "ab", options);  // past the context of 16
  };
  const auto one = samples(1), five = samples(5);
  ASSERT_EQ(five.size(), 5u);
  EXPECT_EQ(one[0].text, five[0].text);
  EXPECT_NE(five[0].text, five[1].text);
  EXPECT_EQ(samples(3)[2].text, five[2].text);
}

TEST_F(Generate, LogProbabilitiesAreThoseOfTheFullForwardPass) {
  at::NoGradGuard no_grad;
  const Sample made =
      generate(*model_, tokenizer_, "ab", {.max_tokens = 5, .logprobs = 2, .sampler = {.temperature = 1}})[0];
  std::vector<int64_t> ids{0, 1};
  ASSERT_EQ(made.tokens.size(), 5u);
  EXPECT_FALSE(made.stopped);
  for (const GeneratedToken& token : made.tokens) {
    const Tensor logits = model_->logits(model_->hidden(at::tensor(ids, at::kLong).unsqueeze(0), 7))[0][-1];
    const Tensor want = at::log_softmax(logits.to(at::kDouble), 0);
    EXPECT_NEAR(token.logprob, want[token.id].item<double>(), 1e-5);
    EXPECT_NEAR(token.top.at(0).logprob, want.max().item<double>(), 1e-5);
    ids.push_back(token.id);
  }
}

TEST_F(Generate, NanLogitsNameTheLayer) {
  at::NoGradGuard no_grad;
  model_->named_parameters()["model.layers.1.mlp.down_proj.weight"].fill_(NAN);
  try {
    run({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 1"), std::string::npos) << error.what();
  }
}

TEST_F(Generate, ACacheThatDoesNotFitIsRefusedWithItsBytes) {
  Decoder decoder(*model_, {0, 1}, 10);
  try {
    decoder.branch(int64_t{1} << 40);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string((int64_t{1} << 40) * cache_bytes(*model_, 12, {}))),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Generate, WeightsInFewerBitsGiveNearlyTheSameText) {
  at::NoGradGuard no_grad;
  const Tensor ids = at::tensor({0, 1, 5, 3}, at::kLong).unsqueeze(0);
  const Tensor exact = model_->forward(ids);
  for (const auto& [type, tolerance] : {std::pair{WeightType::bfloat16, 0.02}, {WeightType::int8, 0.03}}) {
    Model narrow = fresh(tiny());
    narrow->prepare(type);
    const Tensor made = narrow->forward(ids);  // few rows: the kernels
    EXPECT_LT((made - exact).abs().max().item<double>(), tolerance * exact.abs().max().item<double>());
    const Tensor many = narrow->forward(ids.repeat({8, 1}));  // 32 rows: through torch
    EXPECT_LT((many[0] - made[0]).abs().max().item<double>(), 1e-5);
  }
}

TEST(Sampler, FiltersLeaveOnlyLikelyTokens) {
  const std::vector<float> logits{1, 3, 2.9f, -1};
  const auto seen = [&](SamplerOptions options) {
    options.temperature = 5;
    Sampler sampler(options);
    std::set<int32_t> ids;
    for (int i = 0; i < 300; ++i) ids.insert(sampler.next(logits, {}));
    return ids;
  };
  EXPECT_EQ(seen({.top_k = 0, .top_p = 1}), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen({.top_k = 1, .top_p = 1}), (std::set<int32_t>{1}));
  EXPECT_EQ(seen({.top_k = 0, .top_p = 0.6}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(seen({.top_k = 0, .top_p = 1, .min_p = 0.5}), (std::set<int32_t>{1, 2}));
}

TEST(Sampler, RepeatPenaltyLowersSeenTokens) {
  Sampler sampler({.temperature = 0, .repeat_penalty = 2});
  const int32_t seen = 1;
  EXPECT_EQ(sampler.next(std::vector<float>{2, 3}, {&seen, 1}), 0);
}

TEST(Sampler, FrequencyAndPresencePenaltiesCount) {
  const std::vector<float> logits{2, 1.6f, 1, 0.5f};
  const auto best = [&](SamplerOptions options) {
    options.temperature = 0;
    return Sampler(options).next(logits, std::vector<int32_t>{0, 0, 1});
  };
  EXPECT_EQ(best({}), 0);
  EXPECT_EQ(best({.frequency_penalty = 0.5}), 1);  // 1.0, 1.1
  EXPECT_EQ(best({.presence_penalty = 0.5}), 0);   // 1.5, 1.1
  EXPECT_EQ(best({.presence_penalty = 1.5}), 2);
}

TEST(Sampler, TypicalLeavesOutTheObviousAndTheFar) {
  // Surprises 0.69, 1.39, 2.08, 2.08; entropy 1.21: the second token is the most typical one.
  const std::vector<float> logits{std::log(.5f), std::log(.25f), std::log(.125f), std::log(.125f)};
  std::set<int32_t> seen;
  Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1, .typical_p = 0.2});
  for (int i = 0; i < 200; ++i) seen.insert(sampler.next(logits, {}));
  EXPECT_EQ(seen, std::set<int32_t>{1});
}

TEST(Sampler, NonFiniteLogitsAreRefused) {
  Sampler sampler({});
  EXPECT_THROW(sampler.next(std::vector<float>{NAN, 1}, {}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{-INFINITY, -INFINITY}, {}), Error);
  EXPECT_EQ(Sampler({.temperature = 0}).next(std::vector<float>{-INFINITY, 1}, {}), 1);
}

TEST(Sampler, FrequenciesAreThoseOfTheSoftmax) {
  const std::vector<float> logits{std::log(.5f), std::log(.3f), std::log(.2f)};
  for (const int64_t top_k : {0, 3}) {
    Sampler sampler({.temperature = 1, .top_k = top_k, .top_p = 1});
    std::array<int, 3> times{};
    for (int i = 0; i < 20000; ++i) ++times[static_cast<size_t>(sampler.next(logits, {}))];
    EXPECT_NEAR(times[0], 10000, 350);  // five standard deviations
    EXPECT_NEAR(times[1], 6000, 325);
    EXPECT_NEAR(times[2], 4000, 285);
  }
}

TEST(Sampler, FiltersOfALargeVocabularyKeepWhatTheirDefinitionsSay) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(20000);
  for (float& x : logits) x = normal(random);
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0, before = 0;
  for (const float x : sorted) total += std::exp(x);
  size_t nucleus = 0;
  while (before < 0.9 * total) before += std::exp(sorted[nucleus++]);
  ASSERT_GT(nucleus, 64u);
  const auto lowest_of = [&](SamplerOptions options) {
    options.temperature = 100;  // nearly uniform over what is left
    Sampler sampler(options);
    float lowest = sorted[0];
    for (int i = 0; i < 30000; ++i) lowest = std::min(lowest, logits[static_cast<size_t>(sampler.next(logits, {}))]);
    return lowest;
  };
  EXPECT_EQ(lowest_of({.top_k = 0, .top_p = 0.9}), sorted[nucleus - 1]);
  EXPECT_EQ(lowest_of({.top_k = 2000, .top_p = 1}), sorted[1999]);
}

TEST(Sampler, LogProbabilitiesAreTheLogSoftmax) {
  const std::vector<float> logits{1, 3, -2, 3};
  const double norm = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(-2.0));
  EXPECT_NEAR(log_probability(logits, 0), 1 - norm, 1e-12);
  const std::vector<ScoredToken> best = likeliest(logits, 3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 0);
  EXPECT_NEAR(best[0].logprob, 3 - norm, 1e-12);
}

}  // namespace
}  // namespace motet
