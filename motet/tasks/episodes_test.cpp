// What training reads of a task.
#include "motet/tasks/episodes.h"

#include <gtest/gtest.h>

#include <set>

#include "motet/data/batches.h"

namespace motet {
namespace {

using nlohmann::json;

std::shared_ptr<const Task> task(const json& options) { return make_task(options, "task"); }

const json kWhere{{"name", "where-select"}, {"fields", 4}, {"values", 3}, {"items", 5}, {"held_out", 3}};

TEST(EpisodeTokens, AreRowsOfWhichTheAnswerIsLearned) {
  const auto own = task(kWhere);
  const EpisodeTokens tokens(own, 4, 10, false);
  EXPECT_EQ(tokens.row_length(), 9u);
  EXPECT_EQ(tokens.size(), 91u);
  Batches batches(tokens, {.batch_size = 10, .context = 9, .seed = 2});
  const Batch batch = batches.batch(0);
  EXPECT_EQ(batch.learned(), 10);
  std::multiset<std::vector<int64_t>> rows, episodes;
  for (int row = 0; row < 10; ++row) {
    rows.insert({batch.inputs.begin() + 9 * row, batch.inputs.begin() + 9 * row + 9});
    EXPECT_EQ(batch.targets[9 * row + 7], batch.inputs[9 * row + 8]) << "the answer is what is asked for";
    for (const int i : {0, 1, 2, 3, 4, 5, 6, 8}) EXPECT_EQ(batch.targets[9 * row + i], kLeftOut);
    const Episode e = own->episode(4, row, false);
    std::vector<int64_t> whole(e.ids.begin(), e.ids.end());
    whole.insert(whole.end(), e.answer.begin(), e.answer.end());
    episodes.insert(whole);
  }
  EXPECT_EQ(rows, episodes) << "each episode once in a pass";
  const std::vector<int64_t> first = tokens.slice(9, 9), second = tokens.slice(18, 9);
  EXPECT_EQ(tokens.slice(15, 5), (std::vector<int64_t>{first[6], first[7], first[8], second[0], second[1]}));
  EXPECT_EQ(tokens.document_starts(0, 19), (std::vector<uint64_t>{9, 18}));
}

TEST(EpisodeTokens, AllTokensOfAnAnswerAreLearnedAndNothingElse) {
  const auto own = task({{"name", "passkey"}, {"tokens", 64}, {"digits", 2}});
  const EpisodeTokens tokens(own, 4, 3, false);
  EXPECT_EQ(tokens.row_length(), 66u);
  Batches batches(tokens, {.batch_size = 3, .context = 66, .seed = 2});
  const Batch batch = batches.batch(0);
  EXPECT_EQ(batch.learned(), 6);
  std::multiset<std::vector<int64_t>> answers, learned;
  for (int row = 0; row < 3; ++row) {
    const auto target = batch.targets.begin() + 66 * row;
    for (int i = 0; i < 66; ++i) EXPECT_EQ(target[i] != kLeftOut, i == 63 || i == 64) << i;
    learned.insert({target[63], target[64]});
    const Episode e = own->episode(4, static_cast<uint64_t>(row), false);
    answers.insert({e.answer.begin(), e.answer.end()});
  }
  EXPECT_EQ(learned, answers);
  const Episode first = own->episode(4, 0, false);
  EXPECT_EQ(tokens.slice(64, 2), (std::vector<int64_t>{first.answer.begin(), first.answer.end()}));
}

TEST(EpisodeTokens, WithoutEndEachIsReadOnceInItsOrder) {
  const auto own = task(kWhere);
  const EpisodeTokens tokens(own, 4, EpisodeTokens::kEndless, false);
  Batches batches(tokens, {.batch_size = 3, .context = 9, .seed = 2});
  for (const int64_t step : std::vector<int64_t>{0, 1, 5'000'000'000}) {  // beyond 2^32 rows too
    const Batch batch = batches.batch(step);
    for (int64_t row = 0; row < 3; ++row) {
      const Episode e = own->episode(4, static_cast<uint64_t>(3 * step + row), false);
      const auto begin = batch.inputs.begin() + 9 * row;
      EXPECT_EQ((std::vector<int64_t>{begin, begin + 8}), (std::vector<int64_t>{e.ids.begin(), e.ids.end()}));
      EXPECT_EQ(batch.targets[static_cast<size_t>(9 * row + 7)], e.answer[0]);
    }
  }
  EXPECT_EQ(batches.use(4)[0].tokens, 108u);
  EXPECT_LT(batches.use(4)[0].passes, 1e-9);
}

TEST(EpisodeTokens, TestsOfLongerEpisodesAreFewer) {
  const auto small = task({{"name", "noisy-recall"}, {"tokens", 9}}),
             large = task({{"name", "noisy-recall"}, {"tokens", 39}}),
             huge = task({{"name", "noisy-recall"}, {"tokens", 999}});
  EXPECT_EQ(test_episodes(*small, *small), 10000u);
  EXPECT_EQ(test_episodes(*small, *large), 2500u);
  EXPECT_EQ(test_episodes(*small, *huge), 1000u);
}

}  // namespace
}  // namespace motet
