#include "motet/eval/perplexity/perplexity.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

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

}  // namespace
}  // namespace motet
