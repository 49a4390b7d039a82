#include "motet/train/score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

// Five different windows in rows of two: each counts as much as any other, the last row's single one too.
TEST(Score, LossAndErrorAreThoseOfTheWindowsOneByOne) {
  const TextData data = two_texts();
  Model model = fresh(tiny({{"initializer_range", 0.5}}, {{"num_heads", 2}}, data.tokenizer->vocabulary_size()));
  model->to(at::kDouble);
  const ScoredTokens held{*data.validation, data.token_bytes, 16, false};
  const std::vector<int64_t> which{0, 3, 4, 17, 39};
  std::vector<double> losses;
  for (const int64_t window : which) {
    const Tensor ids = at::tensor(data.validation->slice(static_cast<uint64_t>(window) * 16, 17), at::kLong);
    const Tensor logits = model->forward(ids.slice(0, 0, 16).unsqueeze(0));
    losses.push_back(at::cross_entropy_loss(logits[0], ids.slice(0, 1)).item<double>());
  }
  double sum = 0, squares = 0;
  for (const double loss : losses) sum += loss;
  for (const double loss : losses) squares += std::pow(loss - sum / 5, 2);
  ASSERT_GT(squares, 1e-3);
  const AtOnce ways[] = {{1}, {2}, {3}, {5}, {9}, {1, 5}, {2, 7}, {3, 16}, {5, 100}};
  for (const AtOnce& at_once : ways) {
    const WindowScore score = score_windows(*model, held, which, at_once);
    EXPECT_NEAR(score.loss, sum / 5, 1e-12);
    EXPECT_NEAR(score.error, std::sqrt(squares / 4 / 5), 1e-12);
    EXPECT_EQ(score.windows, 5);
    EXPECT_EQ(score.tokens, 80);
  }
  const std::vector<int64_t> one{3};
  EXPECT_EQ(score_windows(*model, held, one, {2}).error, 0);
}

TEST(Score, BitsPerByteComeFromTheBytesOfTheScoredTokens) {
  const TextData data = two_texts();
  Model model = fresh(tiny({}, {}, data.tokenizer->vocabulary_size()));
  std::vector<int32_t> bytes(static_cast<size_t>(data.tokenizer->vocabulary_size()), 3);
  const int64_t target = data.validation->slice(16, 17)[16];
  bytes[static_cast<size_t>(target)] = 5;
  int64_t wanted = 0;
  for (size_t i = 1; i <= 16; ++i) wanted += bytes[static_cast<size_t>(data.validation->slice(16, 17)[i])];
  const std::vector<int64_t> second{1};
  const WindowScore score = score_windows(*model, {*data.validation, bytes, 16, false}, second, {1});
  EXPECT_EQ(score.bytes, wanted);
  EXPECT_NEAR(score.bits_per_byte(), score.loss * 16 / std::log(2.0) / static_cast<double>(wanted), 1e-12);
}

TEST(Score, ProgressCountsWindows) {
  const TextData data = two_texts();
  Model model = fresh(tiny({}, {}, data.tokenizer->vocabulary_size()));
  std::vector<int64_t> seen;
  score_windows(*model, {*data.validation, data.token_bytes, 16, false}, std::vector<int64_t>{1, 2, 3}, {2},
                [&](int64_t done) { seen.push_back(done); });
  EXPECT_EQ(seen, (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace motet
