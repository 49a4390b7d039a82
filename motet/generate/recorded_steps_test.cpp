#include "motet/generate/recorded_steps.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/generate/decoder.h"
#include "motet/generate/testing.h"
#include "motet/ops/device.h"
#include "motet/ops/other_device.h"
#include "motet/ops/other_record.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

class RecordedStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (recording_devices().empty()) GTEST_SKIP() << Graph::why_not(other_device());
  }
  at::NoGradGuard no_grad_;
  int64_t plain_ = 0;  // tensors of a cache
};

std::vector<int64_t> column(const Tensor& ids_BT, int64_t t) {
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < ids_BT.size(0); ++b) ids.push_back(ids_BT[b][t].item<int64_t>());
  return ids;
}

// The logits of every token of ids, a prompt of `prompt` first; how many of the steps behind it were recorded ones.
Tensor decoded(Model& model, const Tensor& ids, int64_t prompt, const CacheOptions& options, int64_t& recorded) {
  const int64_t tokens = ids.size(1);
  Cache cache(model->config(), tokens, std::vector<int64_t>(static_cast<size_t>(ids.size(0)), 0), options);
  RecordedSteps steps;
  std::vector<Tensor> logits{
      model->logits(cache.step(*model, ids.narrow(1, 0, prompt).to(model->device()), tokens)).cpu()};
  for (int64_t t = prompt; t < tokens; ++t) {
    std::optional<Tensor> made = steps.logits(*model, cache, column(ids, t), tokens);
    recorded += made.has_value();
    if (!made) made = model->logits(cache.step(*model, ids.narrow(1, t, 1).to(model->device()), tokens).select(1, -1));
    logits.push_back(made->cpu().unsqueeze(1));
  }
  return at::cat(logits, 1);
}

// The same model on a device.
Model away(const Model& here, at::Device device = other_device()) {
  Model made(here->config(), device);
  made->to(here->dtype());
  const auto from = here->parameters(), to = made->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  return made;
}

TEST_F(RecordedStepsTest, AreThoseOfTheWholeText) {
  at::manual_seed(1);
  for (const at::Device device : recording_devices())
    for (const json& attention : all_attentions()) {
      Model model = wide(attention), there = away(model, device);
      const Tensor ids = random_ids(model, 2, kTokens), expected = model->logits(model->hidden(ids));
      int64_t recorded = 0;
      const Tensor got = decoded(there, ids, 5, {}, recorded);
      EXPECT_LE(difference(got, expected), 1e-10) << device << attention;
      EXPECT_GE(recorded, 30) << device << attention;  // all but those that made the cache grow
    }
}

// In float32, which kernels of ours compute on a GPU.
TEST_F(RecordedStepsTest, AreThoseOfEveryFormOfACache) {
  at::manual_seed(2);
  for (const at::Device device : recording_devices())
    for (const char* mechanism : {"softmax", "dcmha", "coca"})
      for (const CacheType type : {CacheType::model, CacheType::bfloat16, CacheType::int8})
        for (const bool compact : {false, true}) {
          Model model = wide({{"mechanism", mechanism}}, {{"initializer_range", 0.1}});
          if (device.is_cuda()) model->to(at::kFloat);
          Model there = away(model, device);
          const Tensor ids = random_ids(model, 1, kTokens);
          const CacheOptions options{.type = type, .compact = compact};
          int64_t recorded = 0, none = 0;
          const Tensor expected = decoded(model, ids, 9, options, none),
                       got = decoded(there, ids, 9, options, recorded);
          EXPECT_LE(difference(got, expected), device.is_cuda() ? 1e-3 : 1e-9)
              << device << mechanism << " " << name(type) << " " << compact;
          EXPECT_GE(recorded, 25);
          EXPECT_EQ(none, 0) << "a CPU records nothing";
        }
}

TEST_F(RecordedStepsTest, AreMadeAnewForOtherMemory) {
  at::manual_seed(3);
  for (const at::Device device : recording_devices()) {
    Model model = wide({{"mechanism", "dcmha"}}), there = away(model, device);
    RecordedSteps steps;
    for (const int64_t batch : {1, 3, 1}) {
      const Tensor ids = random_ids(model, batch, 20), expected = model->logits(model->hidden(ids, kTokens));
      Cache cache(model->config(), kTokens, std::vector<int64_t>(static_cast<size_t>(batch), 0));
      cache.step(*there, ids.narrow(1, 0, 4).to(device), kTokens);
      for (int64_t t = 4; t < 20; ++t) {
        const std::optional<Tensor> made = steps.logits(*there, cache, column(ids, t), kTokens);
        ASSERT_TRUE(made);
        EXPECT_LE(difference(made->cpu(), expected.select(1, t)), 1e-10) << batch << " " << t;
        if (t == 10) {  // goes back, in the memory that it has
          ASSERT_TRUE(cache.truncate(8));
          cache.step(*there, ids.narrow(1, 8, 3).to(device), kTokens);
        }
      }
    }
  }
}

// The scales of 8 bits are memory of their own, which may be another where the numbers lie where they lay.
TEST_F(RecordedStepsTest, AreOfAllMemoryThatTheyTouch) {
  Model model = wide({{"mechanism", "dcmha"}}), there = away(model);
  for (const CacheType type : {CacheType::model, CacheType::int8}) {
    Cache cache(model->config(), kTokens, {0}, {.type = type});
    cache.step(*there, random_ids(model, 1, 3).to(other_device()), kTokens);
    const size_t tensors = cache.memory().size();
    if (type == CacheType::int8)
      EXPECT_EQ(static_cast<int64_t>(tensors), 2 * plain_);
    else
      plain_ = static_cast<int64_t>(tensors);
  }
  EXPECT_GT(plain_, 0);
}

// What a step asks the host for is its logits alone, and of the host a few numbers.
TEST_F(RecordedStepsTest, ReplaceWhatTheHostAsksFor) {
  if (const std::string reason = Graph::why_not(other_device()); !reason.empty()) GTEST_SKIP() << reason;
  Model model(tiny(), other_device());
  model->initialize(1);
  Decoder decoder(*model, {1, 2, 3}, 30);
  OtherCounts before;
  for (int32_t t = 0; t < 8; ++t) {
    before = other_counts();
    decoder.logits();
    decoder.push({{t}});
  }
  const OtherCounts after = other_counts();
  EXPECT_EQ(after.waits - before.waits, 1);
  EXPECT_EQ(after.without_wait - before.without_wait, 1);
  EXPECT_EQ(after.calls - before.calls, 0);
}

TEST_F(RecordedStepsTest, SayWhyACacheCannot) {
  Model model = wide({{"mechanism", "softmax"}});
  Cache padded(model->config(), 8, {0, 2}), stepwise(model->config(), 8, {0}, {.stepwise_base = true}),
      eager(model->config(), 8, {0}, {.recorded = false}), full(model->config(), 8, {0});
  EXPECT_EQ(padded.why_not_at(), "there is padding");
  EXPECT_EQ(stepwise.why_not_at(), "the base of positions goes by the step");
  EXPECT_EQ(eager.why_not_at(), "records are off");
  EXPECT_EQ(full.why_not_at(), "nothing is held yet");
  full.step(*model, random_ids(model, 1, 7), 8);
  EXPECT_EQ(full.why_not_at(), "");
  full.step(*model, random_ids(model, 1, 1), 8);
  EXPECT_EQ(full.why_not_at(), "there is no room for another token");
}

// The device finds the likeliest, the host draws: what the CPU draws of all logits.
TEST_F(RecordedStepsTest, SamplersGetWhatTheyLookAt) {
  if (const std::string reason = Graph::why_not(other_device()); !reason.empty()) GTEST_SKIP() << reason;
  Model here(tiny({{"initializer_range", 0.3}})), there(here->config(), other_device());
  here->initialize(1), there->initialize(1);
  const int64_t vocabulary = here->config().vocab_size;
  Decoder own(*here, {1, 2, 3}, 30), other(*there, {1, 2, 3}, 30);
  for (const int64_t count : {1, 4, 0, static_cast<int>(vocabulary) - 3, 7}) {
    const Decoder::Next all = own.next(count, vocabulary - 2);
    ASSERT_TRUE(all.logits_BV.defined() && all.likeliest.empty()) << "a CPU has them at hand";
    const int64_t waits = other_counts().waits;
    const Decoder::Next some = other.next(count, vocabulary - 2);
    if (count == 0) {
      ASSERT_TRUE(some.logits_BV.defined() && some.likeliest.empty());
    } else {
      EXPECT_EQ(other_counts().waits - waits, 1);
      ASSERT_EQ(some.likeliest.size(), 1u);
      ASSERT_EQ(static_cast<int64_t>(some.likeliest[0].size()), std::min(count, vocabulary - 2));
      const auto [values, ids] = all.logits_BV.narrow(1, 0, vocabulary - 2).topk(std::min(count, vocabulary - 2));
      for (size_t i = 0; i < some.likeliest[0].size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        EXPECT_EQ(some.likeliest[0][i].id, ids[0][at].item<int64_t>());
        EXPECT_NEAR(some.likeliest[0][i].logit, values[0][at].item<double>(), 1e-4);
      }
    }
    own.push({{5}}), other.push({{5}});
  }
}

TEST_F(RecordedStepsTest, SamplersGetAllWhereTheLikeliestAreOpen) {
  Model model(tiny({{"tie_embeddings", false}}), other_device());
  model->initialize(1);
  const Tensor weight = model->output_weight();
  const int64_t vocabulary = model->config().vocab_size;
  weight.zero_();  // all logits are 0
  Decoder equal(*model, {1, 2}, 8);
  const Decoder::Next open = equal.next(3, vocabulary);
  EXPECT_TRUE(open.likeliest.empty() && open.logits_BV.defined());
  equal.push({{1}});
  const Decoder::Next every = equal.next(vocabulary, vocabulary);  // none is left out: the first token comes first
  ASSERT_EQ(every.likeliest.size(), 1u);
  for (int64_t i = 0; i < vocabulary; ++i) EXPECT_EQ(every.likeliest[0][static_cast<size_t>(i)].id, i);
  weight.fill_(std::numeric_limits<double>::quiet_NaN());
  Decoder broken(*model, {1, 2}, 8);
  EXPECT_NE(message_of<Error>([&] { broken.next(3, vocabulary); }).find("not finite"), std::string::npos);
}

}  // namespace
}  // namespace motet
