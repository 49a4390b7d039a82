#include "motet/eval/perplexity/perplexity.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/data/builtin.h"
#include "motet/eval/token_scores.h"
#include "motet/models/testing.h"
#include "motet/text/bpe/bpe_trainer.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Perplexity, WindowsScoreEachTokenOnce) {
  for (const int64_t tokens : {2, 5, 9, 40, 41})
    for (const int64_t context : {1, 4, 8, 64})
      for (int64_t stride = 1; stride <= context; stride += 3) {
        int64_t next = 1;  // the first token is not predicted
        for (const Window& w : score_windows(tokens, context, stride)) {
          EXPECT_EQ(w.end + 1 - w.scored, next);
          EXPECT_EQ(w.end - w.begin, std::min(context, tokens - 1));
          EXPECT_LE(w.scored, w.end - w.begin);
          next = w.end + 1;
        }
        EXPECT_EQ(next, tokens) << context << " " << stride;
      }
}

TEST(Perplexity, WithAStrideIsTheLikelihoodOfEachTokenFromItsWindow) {
  Model model = testing::fresh(testing::tiny({}, {}, 256));
  model->to(at::kDouble);
  at::NoGradGuard no_grad;
  const std::string text = "To be, or not to be, that is the question.";
  const Perplexity found = text_perplexity(*model, ByteTokenizer(), text, {.context = 8, .stride = 3, .rows = 2});
  double nats = 0;
  const auto count = static_cast<int64_t>(text.size());
  for (int64_t t = 1; t < count; ++t) {
    const int64_t window = t <= 8 ? 0 : (t - 9) / 3 + 1;  // that scores token t
    const int64_t end = std::min(8 + 3 * window, count - 1), begin = end - 8;
    const Tensor ids = at::tensor(ByteTokenizer().encode(text.substr(begin, t - begin)), at::kLong).unsqueeze(0);
    nats -= model->forward(ids)[0][-1].log_softmax(-1)[text[t]].item<double>();
  }
  EXPECT_NEAR(found.nats_per_token, nats / static_cast<double>(count - 1), 1e-12);
  EXPECT_NEAR(found.word_perplexity, std::exp(found.nats_per_token * static_cast<double>(count) / 10), 1e-6);
  EXPECT_EQ(found.tokens, count - 1);

  EXPECT_EQ(text_perplexity(*model, ByteTokenizer(), "ab", {}).tokens, 1);  // shorter than a window
  EXPECT_EQ(message_of<Error>([&] { text_perplexity(*model, ByteTokenizer(), "a", {}); }),
            "the text has 1 token, want at least 2");
  EXPECT_EQ(
      message_of<UsageError>([&] { text_perplexity(*model, ByteTokenizer(), text, {.context = 8, .stride = 9}); }),
      "eval: a stride of 9 tokens, want at most the window of 8");
}

// A tokenizer of more than one byte a token, so that bytes and tokens cannot be taken for each other.
std::unique_ptr<Tokenizer> long_tokens() {
  BpeTrainer trainer;
  trainer.add(builtin_text().substr(0, 50'000));
  return trainer.finish(400, [](int64_t) {});
}

TEST(Perplexity, BitsAreOfTheBytesOfTheTextAndWordsOfItsWords) {
  const auto tokenizer = long_tokens();
  Model model = testing::fresh(testing::tiny({{"initializer_range", 0.3}}, {}, tokenizer->vocabulary_size()));
  const std::string text = "First Citizen:\n\tWe are accounted poor citizens,\r\nthe patricians good. ";
  const auto count = static_cast<double>(tokenizer->encode(text).size());
  ASSERT_LT(count, 0.7 * static_cast<double>(text.size()));
  const Perplexity p = text_perplexity(*model, *tokenizer, text, {});
  EXPECT_EQ(p.tokens, static_cast<int64_t>(count) - 1);
  EXPECT_EQ(p.context, 16);
  ASSERT_GT(count, 20);
  EXPECT_EQ(text_perplexity(*model, *tokenizer, text, {.stride = 16}).nats_per_token, p.nats_per_token);  // the default
  EXPECT_GT(std::abs(p.nats_per_token - std::log(400.0)), 0.1);  // not that of a model that knows nothing
  EXPECT_NEAR(p.perplexity, std::exp(p.nats_per_token), 1e-9 * p.perplexity);
  EXPECT_NEAR(p.bits_per_byte, p.nats_per_token * count / std::log(2.0) / static_cast<double>(text.size()), 1e-12);
  EXPECT_NEAR(std::log(p.word_perplexity), p.nats_per_token * count / 10, 1e-12);
}

TEST(TokenScores, OfABfloat16ModelAreTakenInFloat32) {
  Model model = testing::fresh(testing::tiny({{"initializer_range", 0.3}}, {}, 50));
  model->to(at::kBFloat16);
  at::NoGradGuard no_grad;
  const Tensor hidden = model->hidden(at::arange(12).unsqueeze(0))[0], tokens = at::arange(12);
  const Tensor wide = model->logits(hidden).to(at::kDouble).log_softmax(1).gather(1, tokens.unsqueeze(1)).squeeze(1);
  EXPECT_LT((token_scores(*model, hidden, tokens).log_likelihood - wide).abs().max().item<double>(), 1e-5);
}

// Tokens of three windows of 8 and a rest, in documents that begin inside of windows.
class TokenPerplexity : public ::testing::Test {
 protected:
  TokenPerplexity()
      : model(testing::fresh(testing::tiny({{"initializer_range", 0.3}}, {}, 30))),
        ids(at::arange(30).mul(7).remainder(30)),
        tokens(std::vector<int32_t>(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + 30),
               {0, 3, 12, 14}) {
    model->to(at::kDouble);
  }

  // Nats of the targets of inputs [begin,end), which see none before them.
  double nats_of(int64_t begin, int64_t end) {
    const Tensor scores = model->forward(ids.slice(0, begin, end).unsqueeze(0))[0].log_softmax(-1);
    return -scores.gather(1, ids.slice(0, begin + 1, end + 1).unsqueeze(1)).sum().item<double>();
  }

  at::NoGradGuard no_grad;
  Model model;
  Tensor ids;
  MemoryTokens tokens;
};

TEST_F(TokenPerplexity, IsTheMeanOverWindowsHoweverManyRunTogether) {
  const double nats = (nats_of(0, 8) + nats_of(8, 16) + nats_of(16, 24)) / 24;
  std::vector<int32_t> token_bytes(30);
  for (int32_t id = 0; id < 30; ++id) token_bytes[static_cast<size_t>(id)] = id % 5;
  double bytes = 0;  // of the targets
  for (int64_t i = 1; i <= 24; ++i) bytes += static_cast<double>(ids[i].item<int64_t>() % 5);
  for (const int64_t rows : {0, 1, 2, 3, 10}) {
    const Perplexity p = token_perplexity(*model, tokens, token_bytes, {.context = 8, .rows = rows});
    EXPECT_NEAR(p.nats_per_token, nats, 1e-12) << rows;
    EXPECT_NEAR(p.bits_per_byte, nats * 24 / std::log(2.0) / bytes, 1e-12);
    EXPECT_NEAR(p.perplexity, std::exp(nats), 1e-9);
    EXPECT_EQ(p.tokens, 24);
    EXPECT_EQ(p.context, 8);
    EXPECT_EQ(p.word_perplexity, 0);
  }
  EXPECT_NE(message_of<UsageError>([&] { token_perplexity(*model, tokens, {}, {.stride = 1}); }).find("--stride"),
            std::string::npos);
}

TEST_F(TokenPerplexity, DocumentsApartAreScoredAlone) {
  const double nats =
      nats_of(0, 3) + nats_of(3, 8) + nats_of(8, 12) + nats_of(12, 14) + nats_of(14, 16) + nats_of(16, 24);
  const Perplexity p = token_perplexity(*model, tokens, {}, {.context = 8, .rows = 2, .documents_apart = true});
  EXPECT_NEAR(p.nats_per_token, nats / 24, 1e-12);
}

}  // namespace
}  // namespace motet
