#include "motet/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "motet/core/error.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using namespace testing;

class Generate : public ::testing::Test {
 protected:
  std::string run(GenerateOptions options, const std::string& prompt = "ab") {
    return generate(*model_, tokenizer_, prompt, options)[0].text;
  }
  CharTokenizer tokenizer_{"abcdefghijk"};
  Model model_ = fresh(tiny({{"initializer_range", 0.3}}));  // smaller: the next token depends on the last alone
};

TEST_F(Generate, GreedyIsTheArgmaxStepByStep) {
  const std::string text =
      run({.max_tokens = 20, .writer = {.sampler = {.temperature = 0}}});  // past the context of 16
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
  EXPECT_EQ(generate(*model, tokenizer, "ab", {.max_tokens = 10, .writer = {.sampler = {.temperature = 0}}})[0].text,
            greedy(12));
}

TEST_F(Generate, SeedDecides) {
  const auto with = [&](uint64_t seed) {
    return run({.max_tokens = 40, .writer = {.sampler = {.temperature = 1.5, .seed = seed}}});
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST_F(Generate, StopStringsEndTheTextAndNeverAppear) {
  const std::string whole = run({.max_tokens = 30, .writer = {.sampler = {.temperature = 1, .seed = 3}}});
  const std::string stop = whole.substr(7, 3);
  std::string streamed;
  const std::string text =
      generate(*model_, tokenizer_, "ab",
               {.max_tokens = 30, .writer = {.stop = {stop}, .sampler = {.temperature = 1, .seed = 3}}},
               [&](int64_t, std::string_view part) { streamed += part; })[0]
          .text;
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(streamed, text);
}

TEST_F(Generate, OfSeveralStopStringsTheFirstInTheTextEndsIt) {
  const GenerateOptions plain{.max_tokens = 30, .writer = {.sampler = {.temperature = 1, .seed = 3}}};
  const std::string whole = run(plain), early = whole.substr(5, 3), late = whole.substr(12, 3);
  ASSERT_LT(whole.find(early), whole.find(late));
  for (const std::vector<std::string>& stops : {std::vector{early, late}, {late, early}}) {
    GenerateOptions options = plain;
    options.writer.stop = stops;
    EXPECT_EQ(run(options), whole.substr(0, whole.find(early)));
  }
  GenerateOptions together = plain;  // both are there with the same character
  together.writer.stop = {early.substr(1), early};
  EXPECT_EQ(run(together), whole.substr(0, whole.find(early)));
}

// A tokenizer whose last character is a special token.
class SpecialTokenizer : public CharTokenizer {
 public:
  using CharTokenizer::CharTokenizer;
  bool special(int32_t id) const override { return id == vocabulary_size() - 1; }
};

TEST_F(Generate, EachSampleEndsAtItsOwnEndToken) {
  const SpecialTokenizer tokenizer("abcdefghijk");
  GenerateOptions options{.max_tokens = 24, .samples = 8, .writer = {.sampler = {.temperature = 1.2, .seed = 4}}};
  const auto whole = generate(*model_, tokenizer, "ab", options);
  const auto ends_at = [&](GenerateOptions ending, const std::string& ends) {
    const auto cut = generate(*model_, tokenizer, "ab", ending);
    std::set<size_t> lengths;
    for (size_t i = 0; i < whole.size(); ++i) {
      const size_t at = whole[i].text.find_first_of(ends);
      EXPECT_EQ(cut[i].text, whole[i].text.substr(0, at));
      EXPECT_EQ(cut[i].tokens.size(), cut[i].text.size());  // the token that ends it is not among them
      EXPECT_EQ(cut[i].stopped, at != std::string::npos);
      lengths.insert(cut[i].text.size());
    }
    EXPECT_GT(lengths.size(), 3u);
  };
  EXPECT_FALSE(whole[0].stopped);
  GenerateOptions by_ids = options, by_kind = options;
  by_ids.writer.end_tokens = {2, 7};
  by_kind.writer.end_at_special = true;
  ends_at(by_ids, "ch");
  ends_at(by_kind, "k");
  by_kind.writer.end_tokens = {2};
  ends_at(by_kind, "ck");
}

TEST_F(Generate, TokensThatTheTokenizerDoesNotKnowAreNeverDrawn) {
  at::NoGradGuard no_grad;
  Model padded = fresh(tiny({}, {}, 16));
  padded->named_parameters()["lm_head.weight"].slice(0, 11).mul_(1000);  // the largest logits and the smallest
  const auto samples =
      generate(*padded, tokenizer_, "ab", {.max_tokens = 40, .samples = 4, .writer = {.sampler = {.temperature = 5}}});
  for (const Sample& sample : samples) {
    EXPECT_EQ(sample.tokens.size(), 40u);
    for (const GeneratedToken& token : sample.tokens) EXPECT_LT(token.id, 11);
  }
}

// Penalties from prompt and text as they are said to work, over logits of the full forward pass.
TEST_F(Generate, PenaltiesKnowThePromptAndWhatWasDrawn) {
  at::NoGradGuard no_grad;
  SamplerOptions sampler{.temperature = 0, .repeat_penalty = 3, .frequency_penalty = 0.4, .presence_penalty = 0.2};
  const auto continued = [&](size_t prompt_from) {  // the repeat penalty knows the ids from there on
    std::vector<int64_t> ids{0, 1, 2, 3, 4, 4};
    std::map<int64_t, int> drawn;
    std::string made;
    while (made.size() < 10) {
      Tensor logits = model_->forward(at::tensor(ids, at::kLong).unsqueeze(0))[0][-1].to(at::kDouble);
      for (int64_t id = 0; id < 11; ++id) {
        double x = logits[id].item<double>();
        if (std::find(ids.begin() + prompt_from, ids.end(), id) != ids.end()) x = x > 0 ? x / 3 : x * 3;
        if (drawn[id] > 0) x -= 0.4 * drawn[id] + 0.2;
        logits[id] = x;
      }
      ids.push_back(logits.argmax().item<int64_t>());
      ++drawn[ids.back()];
      made += "abcdefghijk"[ids.back()];
    }
    return made;
  };
  EXPECT_EQ(run({.max_tokens = 10, .writer = {.sampler = sampler}}, "abcdee"), continued(0));
  ASSERT_NE(continued(0), continued(6)) << "the prompt makes no difference here";
}

TEST_F(Generate, PartOfACharacterAtTheEndIsShownAsOne) {
  at::NoGradGuard no_grad;
  const ByteTokenizer bytes;
  Model model = fresh(tiny({}, {}, 256));
  Tensor rows = model->named_parameters()["lm_head.weight"];
  const Tensor ids = at::tensor({'a', 'b'}, at::kLong).unsqueeze(0);
  rows.zero_();
  rows[0xC3].copy_(model->hidden(ids)[0][-1]);  // the only logit above 0, for a character of two bytes
  std::string shown;
  const Sample made = generate(*model, bytes, "ab", {.max_tokens = 1, .writer = {.sampler = {.temperature = 0}}},
                               [&](int64_t, std::string_view text) { shown += text; })[0];
  ASSERT_EQ(made.tokens.at(0).id, 0xC3);
  EXPECT_EQ(made.text, "\xEF\xBF\xBD");
  EXPECT_EQ(shown, made.text);
}

TEST_F(Generate, ThePromptIsSaidToBeDoneOnceAndBeforeTheText) {
  int done = 0;
  const GenerateOptions options{.max_tokens = 3, .samples = 2, .on_prompt = [&] { ++done; }};
  generate(*model_, tokenizer_, "ab", options, [&](int64_t, std::string_view) { EXPECT_EQ(done, 1); });
  EXPECT_EQ(done, 1);
}

TEST_F(Generate, NothingIsDrawnBehindTheLastToken) {
  EXPECT_EQ(run({.max_tokens = 1}, "abcdefghijkabcde").size(), 1u);  // a prompt that fills the context
  int steps = 0;
  const auto samples = generate(*model_, tokenizer_, "ab", {.max_tokens = 5, .samples = 1, .writer = {.logprobs = 3}});
  for (const GeneratedToken& token : samples[0].tokens) {
    EXPECT_EQ(token.top.size(), 3u);
    ++steps;
  }
  EXPECT_EQ(steps, 5);
  EXPECT_FALSE(samples[0].stopped);
}

// Recorded steps, the likeliest found by the device, several samples, past the context of 16.
TEST_F(Generate, AnotherDeviceGivesTheSameTexts) {
  Model there(model_->config(), other_device());
  const auto from = model_->parameters(), to = there->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i].detach());
  const std::vector<SamplerOptions> all{
      {.temperature = 0},         {.top_k = 4, .seed = 3}, {.top_k = 5, .top_p = 0.7, .min_p = 0.1, .seed = 4},
      {.top_k = 0, .top_p = 0.9}, {.top_k = 11},           {.top_k = 6, .repeat_penalty = 1.3}};
  for (const SamplerOptions& sampler : all) {
    const GenerateOptions options{.max_tokens = 40, .samples = 3, .writer = {.stop = {"kk"}, .sampler = sampler}};
    const auto own = generate(*model_, tokenizer_, "abc", options),
               other = generate(*there, tokenizer_, "abc", options);
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].text, other[i].text) << sampler.top_k << " " << i;
      EXPECT_EQ(own[i].stopped, other[i].stopped);
    }
  }
  const GenerateOptions scored{.max_tokens = 9, .writer = {.logprobs = 2, .sampler = {.temperature = 0}}};
  const auto own = generate(*model_, tokenizer_, "abc", scored), other = generate(*there, tokenizer_, "abc", scored);
  ASSERT_EQ(own[0].tokens.size(), other[0].tokens.size());
  for (size_t i = 0; i < own[0].tokens.size(); ++i)
    EXPECT_NEAR(own[0].tokens[i].logprob, other[0].tokens[i].logprob, 1e-4);
}

TEST_F(Generate, PromptsThatCannotBeAreRefused) {
  EXPECT_THROW(run({}, ""), Error);
  EXPECT_THROW(run({}, "aaaaaaaaaaaaaaaaa"), Error);
  EXPECT_THROW(run({}, "xyz"), Error);
}

TEST_F(Generate, ASampleIsTheSameHoweverManyThereAre) {
  const auto samples = [&](int64_t count) {
    GenerateOptions options{.max_tokens = 24, .samples = count, .writer = {.sampler = {.temperature = 1.2, .seed = 4}}};
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
  const Sample made = generate(*model_, tokenizer_, "ab",
                               {.max_tokens = 5, .writer = {.logprobs = 2, .sampler = {.temperature = 1}}})[0];
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
  const Tensor exact = fresh(tiny())->forward(ids);
  for (const auto& [type, tolerance] :
       {std::pair{WeightType::bfloat16, 0.02}, {WeightType::float16, 0.003}, {WeightType::int8, 0.03}}) {
    Model narrow = fresh(tiny());
    narrow->prepare(type);
    const Tensor made = narrow->forward(ids);  // few rows: the kernels
    EXPECT_LT((made - exact).abs().max().item<double>(), tolerance * exact.abs().max().item<double>());
    const Tensor many = narrow->forward(ids.repeat({8, 1}));  // 32 rows: through torch
    EXPECT_LT((many[0] - made[0]).abs().max().item<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace motet
