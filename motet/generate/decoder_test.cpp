#include "motet/generate/decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

constexpr int64_t kContext = 16;

class DecoderTest : public ::testing::Test {
 protected:
  Model model_ = fresh(tiny({{"initializer_range", 0.3}}, {}, 11, kContext));
  std::mt19937 random_{3};

  std::vector<int32_t> ids(size_t count) {
    std::vector<int32_t> made(count);
    for (int32_t& id : made) id = static_cast<int32_t>(random_() % 11);
    return made;
  }
  // Of the token after `ids`, from all of them at once.
  Tensor whole(const std::vector<int32_t>& ids) {
    at::NoGradGuard no_grad;
    return model_->forward(at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0))[0][-1];
  }
  double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }
};

TEST_F(DecoderTest, AReplacedTextIsThatOfAFreshDecoder) {
  for (const size_t first : {5u, 14u, 40u}) {  // 40: the context was cut, so the cache begins in the middle
    for (const size_t shared : {0u, 1u, 4u, 9u}) {
      Decoder decoder(*model_, ids(5), kContext);
      decoder.logits();
      while (decoder.ids().size() < first) {
        decoder.push(std::vector{ids(1)[0]});
        decoder.logits();
      }
      std::vector<int32_t> next(decoder.ids().begin(),
                                decoder.ids().begin() + static_cast<ptrdiff_t>(std::min(shared, first)));
      for (const int32_t id : ids(3)) next.push_back(id);
      decoder.replace(next);
      EXPECT_EQ(decoder.ids(), next);
      EXPECT_LT(difference(decoder.logits()[0], whole(next)), 1e-5) << first << " " << shared;
    }
  }
}

TEST_F(DecoderTest, WhatIsReplacedByTheSameIsComputedOnce) {
  const std::vector<int32_t> text = ids(10);
  Decoder decoder(*model_, text, 4);
  EXPECT_EQ(decoder.pending(), 10);
  const Tensor logits = decoder.logits();
  EXPECT_EQ(decoder.pending(), 0);
  decoder.replace(text);  // the last token again, for its logits
  EXPECT_EQ(decoder.pending(), 1);
  EXPECT_LT(difference(decoder.logits(), logits), 1e-5);
  std::vector<int32_t> longer = text;
  longer.push_back(1), longer.push_back(2);
  decoder.replace(longer);  // all that is known stays
  EXPECT_EQ(decoder.pending(), 2);
  EXPECT_LT(difference(decoder.logits()[0], whole(longer)), 1e-5);
  std::vector<int32_t> other(text.begin(), text.begin() + 6);
  other.push_back((text[6] + 1) % 11);
  decoder.replace(other);
  EXPECT_EQ(decoder.pending(), 1);
  decoder.replace({text.begin(), text.begin() + 3});  // shorter than what is known
  EXPECT_EQ(decoder.pending(), 1);
  EXPECT_LT(difference(decoder.logits()[0], whole({text.begin(), text.begin() + 3})), 1e-5);
}

TEST_F(DecoderTest, BranchesGoOnAlone) {
  const std::vector<int32_t> prompt = ids(6);
  Decoder decoder(*model_, prompt, kContext);
  decoder.logits();
  decoder.branch(3);
  EXPECT_EQ(decoder.sequences(), 3);
  std::vector<std::vector<int32_t>> texts(3, prompt);
  for (int step = 0; step < 14; ++step) {  // past the context
    const std::vector<int32_t> next = ids(3);
    decoder.push(next);
    for (size_t i = 0; i < 3; ++i) texts[i].push_back(next[i]);
    const Tensor logits = decoder.logits();
    ASSERT_EQ(logits.size(0), 3);
    const size_t size = texts[0].size(), begin = size > 16 ? 9 : 0;  // 17 tokens: anew with the last 8 of them
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(decoder.ids(static_cast<int64_t>(i)), texts[i]);
      const std::vector<int32_t> seen(texts[i].begin() + static_cast<ptrdiff_t>(begin), texts[i].end());
      EXPECT_LT(difference(logits[static_cast<int64_t>(i)], whole(seen)), 1e-5) << step << " " << i;
    }
  }
}

TEST_F(DecoderTest, ALongPromptIsComputedInPieces) {
  model_ = fresh(tiny({{"initializer_range", 0.3}}, {}, 11, 1200));
  const std::vector<int32_t> prompt = ids(1100);
  Decoder decoder(*model_, prompt, 10);
  EXPECT_LT(difference(decoder.logits()[0], whole(prompt)), 1e-4);
  EXPECT_EQ(decoder.cache().size(), 1100);
  EXPECT_EQ(decoder.cache().capacity(), 1110);
}

TEST_F(DecoderTest, WrongCallsAreNamed) {
  Decoder decoder(*model_, ids(3), 4);
  decoder.logits();
  EXPECT_EQ(message_of<Error>([&] { decoder.logits(); }),
            "generate: there is no new token to compute, want a prompt or a token between");
  EXPECT_EQ(message_of<Error>([&] { decoder.push(std::vector<int32_t>{1, 2}); }),
            "decoder: 2 tokens, want one for each of 1 sequences");
}

}  // namespace
}  // namespace motet
