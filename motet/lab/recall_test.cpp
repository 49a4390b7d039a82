// Which tokens are recalled, by plain loops, and that their losses are those of a validation.
#include "motet/lab/recall.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/splitmix.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/train/score.h"

namespace motet {
namespace {

using namespace testing;
using Ids = std::vector<int64_t>;

Ids drawn(size_t count, uint64_t kinds, uint64_t seed) {
  Ids ids;
  for (uint64_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(splitmix64(seed, i) % kinds));
  return ids;
}
MemoryTokens sequence(const Ids& ids) { return MemoryTokens(std::vector<int32_t>(ids.begin(), ids.end())); }

// Occurrences of each n-gram.
std::map<Ids, int> counts_of(const Ids& ids, size_t n) {
  std::map<Ids, int> counts;
  for (size_t at = 0; at + n <= ids.size(); ++at)
    ++counts[Ids(ids.begin() + static_cast<long>(at), ids.begin() + static_cast<long>(at + n))];
  return counts;
}

// As many different ones occur at least as often, this one among them.
bool plainly_frequent(const std::map<Ids, int>& counts, const Ids& ngram, double part) {
  const auto own = counts.find(ngram);
  if (own == counts.end()) return false;
  int at_least = 0;
  for (const auto& [other, count] : counts) at_least += count >= own->second;
  return at_least <= static_cast<int>(part * static_cast<double>(counts.size()));
}

TEST(Recalled, EqualsThePlainLoop) {
  int found = 0, known = 0;
  for (uint64_t round = 0; round < 20; ++round) {
    const size_t n = 1 + round % 4;
    const Ids text = drawn(400, 5, round), window = drawn(60, 5, 100 + round);
    const std::map<Ids, int> counts = counts_of(text, n);
    const double part = 0.1 * static_cast<double>(round % 5);
    const FrequentNgrams frequent(sequence(text), static_cast<int64_t>(n), part);
    const std::vector<bool> own = recalled(window, frequent);
    ASSERT_EQ(own.size(), window.size());
    for (size_t i = 0; i < window.size(); ++i) {
      bool before = false, common = false;
      if (i + 1 >= n) {
        const Ids ngram(window.begin() + static_cast<long>(i + 1 - n), window.begin() + static_cast<long>(i + 1));
        for (size_t end = n - 1; end < i; ++end)
          before |= std::equal(ngram.begin(), ngram.end(), window.begin() + static_cast<long>(end + 1 - n));
        common = plainly_frequent(counts, ngram, part);
        EXPECT_EQ(frequent.contains(ngram), common) << round << " " << i;
      }
      EXPECT_EQ(own[i], before && !common) << round << " " << i;
      found += own[i], known += before && common;
    }
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(known, 50);
}

TEST(Recalled, IsTheEndOfWhatReturns) {
  const FrequentNgrams none(sequence({9, 9, 9}), 3, 0);
  EXPECT_EQ(recalled(Ids{1, 2, 3, 4, 1, 2, 3}, none), (std::vector<bool>{0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(recalled(Ids{5, 5, 5, 5, 5}, none), (std::vector<bool>{0, 0, 0, 1, 1})) << "they may overlap";
  const FrequentNgrams one(sequence({1, 2, 3, 1, 2, 3, 1, 7, 8}), 3, 0.4);
  EXPECT_TRUE(one.contains(Ids{1, 2, 3}) && !one.contains(Ids{3, 1, 2}) && !one.contains(Ids{1, 7, 8}));
  EXPECT_EQ(recalled(Ids{1, 2, 3, 4, 1, 2, 3}, one), std::vector<bool>(7));
  EXPECT_FALSE(FrequentNgrams(sequence({1, 2, 3, 1, 2, 3, 4, 2, 3, 4}), 3, 0.3).contains(Ids{2, 3, 4}))
      << "another one occurs as often, for which there is no place";
  EXPECT_EQ(recalled(Ids{1, 2}, none), std::vector<bool>(2)) << "shorter than an n-gram";
}

TEST(RecallLosses, SplitTheLossOfAValidation) {
  Model model = fresh(tiny({{"initializer_range", 0.5}}));
  const int64_t context = model->config().context;
  const Ids ids = drawn(static_cast<size_t>(20 * context + 5), 3, 1);
  const MemoryTokens validation = sequence(ids), train = sequence(drawn(500, 3, 2));
  const Recall recall = read_recall({{"n", 3}, {"tokens", 18 * context + 1}, {"frequent", 0.2}});
  const auto found = recall_losses(*model.ptr(), train, validation, recall);
  Ids which;
  for (int64_t i = 0; i < 18; ++i) which.push_back(i);
  const WindowScore all = score_windows(*model.ptr(), {validation, {}, context}, which, {4});
  const double part = found.at("recalled");
  EXPECT_GT(part, 0.1);
  EXPECT_LT(part, 0.9);
  EXPECT_NEAR(part * found.at("loss{recall}") + (1 - part) * found.at("loss{rest}"), all.loss, 1e-6);

  at::NoGradGuard no_grad;  // the recalled tokens of the first window alone
  const FrequentNgrams frequent(train, 3, 0.2);
  const auto one = recall_losses(*model.ptr(), train, validation, {.n = 3, .tokens = context + 1, .frequent = 0.2});
  const Ids window(ids.begin(), ids.begin() + context + 1);
  const std::vector<bool> own = recalled(window, frequent);
  const Tensor logits = model->forward(at::tensor(Ids(window.begin(), window.end() - 1)).unsqueeze(0))[0];
  double sum = 0, count = 0;
  for (int64_t i = 0; i < context; ++i)
    if (const auto target = static_cast<size_t>(i + 1); own[target])
      sum -= at::log_softmax(logits[i], 0)[window[target]].item<double>(), ++count;
  ASSERT_GT(count, 0);
  EXPECT_NEAR(one.at("loss{recall}"), sum / count, 1e-5);
}

TEST(RecallLosses, RefuseWhatTheyDoNotKnow) {
  for (const auto& [given, says] :
       std::vector<std::pair<nlohmann::json, std::string>>{{{{"m", 5}}, "unknown option 'recall.m'"},
                                                           {{{"n", 0}}, "recall.n: 0"},
                                                           {{{"frequent", 2}}, "recall.frequent: 2"},
                                                           {{{"tokens", 1.5}}, "recall.tokens: 1.5"},
                                                           {8, "recall: want a table"}})
    EXPECT_NE(message_of<UsageError>([&] { read_recall(given); }).find(says), std::string::npos) << given;
  EXPECT_NE(message_of<UsageError>([] { check_recall(tiny(), {.tokens = 16}); }).find("the context of 16"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { check_recall(tiny(), {.n = 16}); }).find("recall.n: 16"), std::string::npos);
}

}  // namespace
}  // namespace motet
