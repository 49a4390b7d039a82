#include "motet/serve/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "motet/serve/testing.h"

namespace motet {
namespace {

using testing::CountedModel;
using testing::HeardAnswer;

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() { start({}); }
  void start(SchedulerLimits limits) {
    scheduler_.emplace(model_, tokenizer_, limits, metrics_, [this] { return now_; });
  }
  std::shared_ptr<HeardAnswer> submit(std::vector<int32_t> prompt, int64_t max_tokens, Job more = {}) {
    auto answer = std::make_shared<HeardAnswer>();
    more.prompt = std::move(prompt), more.max_tokens = max_tokens, more.answer = answer;
    more.writer.sampler.temperature = 0;
    more.since = now_;
    scheduler_->submit(std::move(more));
    return answer;
  }
  static std::vector<int32_t> prompt(size_t tokens, int32_t seed = 0) {
    std::vector<int32_t> ids(tokens);
    for (size_t i = 0; i < tokens; ++i)
      ids[i] = static_cast<int32_t>((i * 7 + i / 64 + static_cast<size_t>(seed)) % 200);
    return ids;
  }
  // What the model answers to a prompt that is alone: greedily.
  std::string alone(std::vector<int32_t> ids, int64_t tokens) {
    std::string text;
    for (int64_t i = 0; i < tokens; ++i) {
      const std::vector<float> row = model_.logits(ids);
      ids.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      text += tokenizer_.decode({&ids.back(), 1});
    }
    return text;
  }
  int64_t total() { return std::accumulate(model_.last_step.begin(), model_.last_step.end(), int64_t{0}); }
  void run() {
    while (scheduler_->step()) continue;
  }

  CountedModel model_;
  ByteTokenizer tokenizer_;
  Metrics metrics_;
  double now_ = 0;
  std::optional<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, EveryoneGetsWhatItGetsAlone) {
  std::mt19937 random(1);
  std::vector<std::pair<std::shared_ptr<HeardAnswer>, std::pair<std::vector<int32_t>, int64_t>>> all;
  for (int i = 0; i < 60; ++i) {
    auto ids = prompt(1 + random() % 300, static_cast<int32_t>(random() % 3));
    const int64_t tokens = 1 + random() % 20;
    all.push_back({submit(ids, tokens), {ids, tokens}});
    for (unsigned steps = random() % 4; steps > 0; --steps) scheduler_->step();
  }
  run();
  for (const auto& [answer, asked] : all) {
    ASSERT_TRUE(answer->finished);
    // Bytes that are no character are U+FFFD in the text, so the tokens are compared.
    EXPECT_EQ(answer->tokens, asked.second);
    StreamDecoder decoder(tokenizer_);
    std::string text;
    for (const char byte : alone(asked.first, asked.second)) text += decoder.push(static_cast<unsigned char>(byte));
    EXPECT_EQ(answer->texts[0], text + decoder.flush());
    EXPECT_EQ(answer->usage.prompt_tokens, static_cast<int64_t>(asked.first.size()));
  }
  EXPECT_EQ(metrics_.running, 0);
  EXPECT_EQ(metrics_.cache_bytes, 0);
}

TEST_F(SchedulerTest, ALongPromptDelaysOthersByNoStep) {
  const auto running = submit(prompt(10), 100);
  scheduler_->step();
  submit(prompt(4000, 9), 5);
  for (int i = 0; i < 8; ++i) {
    const int64_t before = running->tokens;
    scheduler_->step();
    EXPECT_EQ(running->tokens, before + 1);
    EXPECT_LE(total(), 512 + 63);
    EXPECT_GE(total(), i < 7 ? 448 : 400);
  }
}

TEST_F(SchedulerTest, PromptsAreCutFromTheirBeginning) {
  submit(prompt(200), 1);
  scheduler_->step();
  EXPECT_EQ(model_.last_step, (std::vector<int64_t>{64, 64, 64, 8}));
}

TEST_F(SchedulerTest, WhoDoesNotFitWaitsAndKeepsItsTurn) {
  start({.cache_bytes = 1000});
  const auto first = submit(prompt(60), 20), large = submit(prompt(60, 5), 20), small = submit(prompt(5, 8), 5);
  scheduler_->step();
  EXPECT_EQ(scheduler_->running(), 1);
  EXPECT_EQ(scheduler_->waiting(), 2);
  while (!first->finished) scheduler_->step();
  EXPECT_FALSE(small->finished);
  run();
  EXPECT_TRUE(large->finished && small->finished);
}

TEST_F(SchedulerTest, EverySampleReservesItsMemory) {
  start({.cache_bytes = 1000});
  const auto several = submit(prompt(20), 20, {.samples = 2}), other = submit(prompt(20, 4), 10);
  scheduler_->step();
  EXPECT_EQ(metrics_.cache_bytes, 800);
  EXPECT_EQ(scheduler_->waiting(), 1);
  run();
  EXPECT_TRUE(several->finished && other->finished);
}

TEST_F(SchedulerTest, ABeginningThatWasComputedIsTakenOver) {
  const auto first = submit(prompt(300), 4);
  run();
  const int64_t computed = model_.computed;
  std::vector<int32_t> next = prompt(300);
  next.push_back(77);
  const auto second = submit(next, 4);
  run();
  EXPECT_EQ(second->usage.cached_tokens, 256);
  EXPECT_EQ(first->usage.cached_tokens, 0);
  EXPECT_EQ(model_.computed - computed, 301 - 256 + 3);
  EXPECT_EQ(metrics_.prefix_hits, 256);
  EXPECT_EQ(second->whole.empty(), false);
  const auto whole = submit(prompt(256), 1);  // its last piece makes the logits
  run();
  EXPECT_EQ(whole->usage.cached_tokens, 192);
}

TEST_F(SchedulerTest, OthersPrefixesAreNotTakenOver) {
  submit(prompt(300), 4, {.owner = "0"});
  run();
  const auto other = submit(prompt(300), 4, {.owner = "1"}), same = submit(prompt(300), 4, {.owner = "0"});
  run();
  EXPECT_EQ(other->usage.cached_tokens, 0);
  EXPECT_EQ(same->usage.cached_tokens, 256);
}

TEST_F(SchedulerTest, KeptPrefixesGiveWayToRequests) {
  start({.cache_bytes = 5000});
  submit(prompt(300), 4);
  run();
  EXPECT_GT(metrics_.prefix_bytes, 0);
  const auto large = submit(prompt(400, 5), 90);
  run();
  EXPECT_TRUE(large->finished);
  EXPECT_LE(metrics_.prefix_bytes, 5000);
  const auto again = submit(prompt(300), 4);
  run();
  EXPECT_EQ(again->usage.cached_tokens, 0);
}

TEST_F(SchedulerTest, ALongAnswerIsNotKeptWithItsPrompt) {
  submit(prompt(130), 300);
  run();
  EXPECT_EQ(metrics_.prefix_bytes, (10 + 4) * 128);  // keys and ids
  const auto again = submit(prompt(130), 4);
  run();
  EXPECT_EQ(again->usage.cached_tokens, 128);
}

TEST_F(SchedulerTest, AWindowIsTakenOverWhereItCanEndAlone) {
  model_.window = 20;
  submit(prompt(130), 60);  // the answer pushed out what a window behind 128 tokens needs
  run();
  EXPECT_EQ(metrics_.prefix_bytes, 0);
  std::vector<int32_t> other = prompt(64), longer = prompt(64);
  for (int32_t i = 0; i < 80; ++i) other.push_back(200 - i), longer.push_back(i);
  const auto cached = [&](std::vector<int32_t> ids) {
    const auto one = submit(std::move(ids), 4);
    run();
    return one->usage.cached_tokens;
  };
  EXPECT_EQ(cached(prompt(70)), 0);
  EXPECT_EQ(cached(longer), 64);  // which is kept, and does not stand for the first 64 tokens
  EXPECT_EQ(cached(other), 64);
  EXPECT_EQ(cached(longer), 128);
}

TEST_F(SchedulerTest, WithoutMemoryToKeepAPromptAllGoOn) {
  model_.no_memory = true;
  const auto first = submit(prompt(130), 300), other = submit(prompt(60), 400);
  run();
  EXPECT_TRUE(first->finished && other->finished);
  EXPECT_EQ(metrics_.prefix_bytes, 0);
  EXPECT_EQ(metrics_.cache_bytes, 0);
}

// A window may have dropped what another prompt would need.
TEST_F(SchedulerTest, WhatCannotBeTakenOverIsComputedAnew) {
  model_.copies = false;
  for (const int64_t tokens : {300, 4}) {
    const auto first = submit(prompt(130), tokens), again = submit(prompt(130), tokens);
    run();
    EXPECT_TRUE(first->finished && again->finished);
    EXPECT_EQ(again->usage.cached_tokens, 0);
    EXPECT_EQ(again->texts, first->texts);
    if (tokens == 300) {
      EXPECT_EQ(metrics_.prefix_bytes, 0) << "what nobody can take over";
    }
  }
  const auto samples = submit(prompt(130), 4, {.samples = 2});
  run();
  EXPECT_EQ(samples->status, 500);
  EXPECT_EQ(model_.alive, 1) << "the kept prompt's";
}

TEST_F(SchedulerTest, WhatIsTakenOverMakesRoomLast) {
  start({.cache_bytes = 5500});
  submit(prompt(128), 1), submit(prompt(128, 5), 1);
  run();
  std::vector<int32_t> longer = prompt(128);
  longer.insert(longer.end(), 12, 3);
  const auto next = submit(longer, 200);
  run();
  EXPECT_EQ(next->usage.cached_tokens, 128);
}

TEST_F(SchedulerTest, SamplesGoOnFromOnePrompt) {
  Job several{.samples = 3};
  const auto answer = submit(prompt(100), 7, several);
  run();
  EXPECT_EQ(answer->ended_samples, 3);
  EXPECT_EQ(answer->texts[0], answer->texts[2]);  // greedy
  EXPECT_EQ(model_.computed, 100 + 3 * 6);
  EXPECT_EQ(answer->usage.completion_tokens, 21);
}

TEST_F(SchedulerTest, APromptIsScoredTokenByToken) {
  Job scoring;
  scoring.score_prompt = true, scoring.writer.logprobs = 2;
  const std::vector<int32_t> ids = prompt(130);
  for (const int64_t max_tokens : {0, 1}) {
    const auto answer = submit(ids, max_tokens, scoring);
    run();
    ASSERT_EQ(answer->prompt.size(), ids.size());
    for (size_t i = 1; i < ids.size(); ++i) {
      const std::vector<float> row = model_.logits({ids.data(), i});
      EXPECT_EQ(answer->prompt[i].id, ids[i]);
      EXPECT_EQ(answer->prompt[i].logprob, log_probability(row, ids[i]));
      EXPECT_EQ(answer->prompt[i].top[1].logprob, likeliest(row, 2, 256)[1].logprob);
    }
    EXPECT_TRUE(answer->finished);
    EXPECT_EQ(answer->tokens, max_tokens);
  }
}

// As motet eval and other libraries have it: a column of no token takes its part of the probability and is never drawn.
TEST_F(SchedulerTest, ProbabilitiesAreThoseOfAllColumns) {
  model_.columns = 400;
  Job scoring;
  scoring.score_prompt = true, scoring.writer.logprobs = 3;
  const std::vector<int32_t> ids = prompt(70);
  const auto answer = submit(ids, 5, scoring);
  run();
  for (size_t i = 1; i < ids.size(); ++i) {
    const std::vector<float> row = model_.logits({ids.data(), i});
    ASSERT_EQ(row.size(), 400u);
    EXPECT_EQ(answer->prompt[i].logprob, log_probability(row, ids[i]));
    EXPECT_EQ(answer->prompt[i].top[0].logprob, log_probability(row, answer->prompt[i].top[0].id));
    EXPECT_LT(answer->prompt[i].top[0].id, 256);
  }
  const std::vector<float> last = model_.logits(ids);
  const auto best = static_cast<int32_t>(std::max_element(last.begin(), last.begin() + 256) - last.begin());
  ASSERT_EQ(answer->scores.size(), 5u);
  EXPECT_EQ(answer->scores[0].id, best);
  EXPECT_EQ(answer->scores[0].logprob, log_probability(last, best));
}

TEST_F(SchedulerTest, WhoLeavesFreesItsPlaceWithinAStep) {
  const auto answer = submit(prompt(100), 50), waiting = submit(prompt(100, 3), 50);
  scheduler_->step();
  EXPECT_GT(model_.alive, 0);
  answer->has_gone = waiting->has_gone = true;
  scheduler_->step();
  EXPECT_EQ(scheduler_->running() + scheduler_->waiting(), 0);
  EXPECT_EQ(model_.alive, 2);  // their prompts are kept, as those of ended requests
  EXPECT_EQ(metrics_.cache_bytes, 0);
  EXPECT_EQ(metrics_.gone, 2);
  const auto again = submit(prompt(110), 1);
  run();
  EXPECT_EQ(again->usage.cached_tokens, 64);
  EXPECT_EQ(answer->usage.prompt_tokens, 100);
  EXPECT_EQ(answer->usage.completion_tokens, answer->tokens);
}

TEST_F(SchedulerTest, ASlowReaderKeepsItsPlaceAndHoldsNobodyUp) {
  const auto slow = submit(prompt(10), 20), fast = submit(prompt(10, 3), 20);
  scheduler_->step();
  slow->is_slow = true;
  const int64_t tokens = slow->tokens;
  run();
  EXPECT_TRUE(fast->finished);
  EXPECT_EQ(slow->tokens, tokens);
  slow->is_slow = false;
  run();
  EXPECT_TRUE(slow->finished);
}

TEST_F(SchedulerTest, ARequestHasItsTimeAlone) {
  start({.request_seconds = 10});
  const auto answer = submit(prompt(100), 1000);
  scheduler_->step();
  now_ = 11;
  const auto other = submit(prompt(100), 3);
  run();
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->message, "the request took more than 10 seconds");
  EXPECT_EQ(other->usage.cached_tokens, 64);  // another try does not compute it again
  EXPECT_EQ(answer->usage.prompt_tokens, 100);
  EXPECT_EQ(answer->usage.completion_tokens, 1);
  EXPECT_TRUE(other->finished);
}

TEST_F(SchedulerTest, InfinityIsNoAnswer) {
  model_.fault = 199;
  for (const float faulty : {INFINITY, -INFINITY}) {
    model_.faulty = faulty;
    std::vector<int32_t> ids = prompt(70);
    ids.back() = 199;
    const auto answer = submit(ids, 5);
    run();
    EXPECT_EQ(answer->status, 500);
  }
}

TEST_F(SchedulerTest, NumbersThatAreNotFiniteEndTheirRequestAlone) {
  model_.fault = 199;
  std::vector<int32_t> bad = prompt(70);
  bad.back() = 199;
  const auto wrong = submit(bad, 5), right = submit(prompt(70, 1), 5);
  run();
  EXPECT_EQ(wrong->status, 500);
  EXPECT_NE(wrong->message.find("layer 3"), std::string::npos);
  EXPECT_TRUE(right->finished);
  EXPECT_EQ(metrics_.failed, 1);
}

}  // namespace
}  // namespace motet
