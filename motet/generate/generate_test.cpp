#include "motet/generate/generate.h"

#include <gtest/gtest.h>

#include <set>

#include "motet/core/error.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

class Generate : public ::testing::Test {
 protected:
  std::string run(GenerateOptions options, const std::string& prompt = "ab") {
    return generate(*model_, tokenizer_, prompt, options);
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
  EXPECT_EQ(generate(*model, tokenizer, "ab", {.max_tokens = 10, .stop = {}, .sampler = {.temperature = 0}}),
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
               [&](std::string_view part) { streamed += part; });
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(streamed, text);
}

TEST_F(Generate, PromptsThatCannotBeAreRefused) {
  EXPECT_THROW(run({}, ""), Error);
  EXPECT_THROW(run({}, "aaaaaaaaaaaaaaaaa"), Error);
  EXPECT_THROW(run({}, "xyz"), Error);
}

TEST(Sampler, FiltersLeaveOnlyLikelyTokens) {
  const Tensor logits = at::tensor({1.0, 3.0, 2.9, -1.0});
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
  EXPECT_EQ(sampler.next(at::tensor({2.0, 3.0}), {&seen, 1}), 0);
}

TEST(Sampler, FrequencyAndPresencePenaltiesCount) {
  const Tensor logits = at::tensor({2.0, 1.6, 1.0, 0.5});
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
  const Tensor logits = at::log(at::tensor({0.5, 0.25, 0.125, 0.125}, at::kDouble));
  std::set<int32_t> seen;
  Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1, .typical_p = 0.2});
  for (int i = 0; i < 200; ++i) seen.insert(sampler.next(logits, {}));
  EXPECT_EQ(seen, std::set<int32_t>{1});
}

TEST(Sampler, NonFiniteLogitsAreRefused) {
  Sampler sampler({});
  EXPECT_THROW(sampler.next(at::tensor({NAN, 1.0}), {}), Error);
}

}  // namespace
}  // namespace motet
