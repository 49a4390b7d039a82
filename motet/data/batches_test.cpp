#include "motet/data/batches.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

MemoryTokens counting(int count, std::vector<uint64_t> starts = {}) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return MemoryTokens(tokens, std::move(starts));
}

TEST(Batches, TargetsAreTheInputsOneTokenLater) {
  const auto tokens = counting(1000);
  Batches batches(tokens, {.batch_size = 4, .context = 16, .seed = 7});
  for (int step = 0; step < 50; ++step) {
    const Batch batch = batches.next();
    ASSERT_EQ(batch.rows, 4);
    ASSERT_EQ(batch.columns, 16);
    ASSERT_EQ(batch.inputs.size(), 64u);
    for (size_t i = 0; i < 64; ++i) ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
    for (size_t i = 0; i < 64; ++i)
      ASSERT_EQ(batch.inputs[i], batch.inputs[i / 16 * 16] + static_cast<int64_t>(i % 16));
  }
}

TEST(Batches, TheOrderDependsOnTheSeedAlone) {
  const auto tokens = counting(1000);
  Batches a(tokens, {.batch_size = 4, .context = 16, .seed = 7});
  Batches b(tokens, {.batch_size = 4, .context = 16, .seed = 7});
  Batches c(tokens, {.batch_size = 4, .context = 16, .seed = 8});
  bool differs = false;
  for (int step = 0; step < 50; ++step) {
    const Batch from_a = a.next();
    EXPECT_EQ(from_a.inputs, b.next().inputs);
    differs |= from_a.inputs != c.next().inputs;
  }
  EXPECT_TRUE(differs);
}

TEST(Batches, TheOrderIsTheSameOnEveryMachine) {
  const auto tokens = counting(100);
  Batches batches(tokens, {.batch_size = 3, .context = 8, .seed = 1});
  const Batch batch = batches.next();
  EXPECT_EQ((std::vector<int64_t>{batch.inputs[0], batch.inputs[8], batch.inputs[16]}),
            (std::vector<int64_t>{44, 52, 84}));
}

TEST(Batches, EachWindowComesOnceInAPass) {
  const auto tokens = counting(16 * 10 + 1);
  Batches batches(tokens, {.batch_size = 1, .context = 16, .seed = 3});
  std::map<int64_t, int> seen;
  int64_t rows = 0;
  while (batches.position()["pass"] == 0) {
    const int64_t start = batches.next().inputs[0];
    if (batches.position()["pass"] == 0) ++seen[start], ++rows;
  }
  EXPECT_GE(rows, 9);
  for (const auto& [start, count] : seen) {
    EXPECT_EQ(count, 1);
    EXPECT_EQ(start % 16, seen.begin()->first % 16);
  }
}

// The first tokens of the windows of a pass, which are their places in counting(), in the order in which they come.
std::vector<int64_t> windows_of_pass(const TokenSequence& tokens, int64_t context, uint64_t seed, uint64_t pass) {
  Batches batches(tokens, {.batch_size = 1, .context = context, .seed = seed});
  std::vector<int64_t> starts;
  while (true) {
    const Batch batch = batches.next();  // may begin a pass
    if (batches.position()["pass"] > pass) return starts;
    if (batches.position()["pass"] == pass) starts.push_back(batch.inputs[0]);
  }
}

TEST(Batches, EachPassHasAnOrderOfItsOwn) {
  const auto tokens = counting(16 * 40 + 1);
  std::vector<int64_t> first = windows_of_pass(tokens, 16, 3, 0), second = windows_of_pass(tokens, 16, 3, 1);
  const auto shift = [](const std::vector<int64_t>& starts) { return std::ranges::min(starts); };
  std::set<int64_t> shifts;
  for (uint64_t pass = 0; pass < 12; ++pass) shifts.insert(shift(windows_of_pass(tokens, 16, 3, pass)));
  EXPECT_GT(shifts.size(), 4u);  // of 16
  for (std::vector<int64_t>* starts : {&first, &second}) {
    EXPECT_FALSE(std::ranges::is_sorted(*starts));
    const int64_t from = shift(*starts);
    for (int64_t& start : *starts) start -= from;
  }
  first.resize(39), second.resize(39);  // one of them may have a window more
  EXPECT_NE(first, second);
}

TEST(Batches, APassCutsTheTextFromAnyPlaceBelowTheContextToItsEnd) {
  constexpr int64_t kContext = 6;
  for (int count = kContext + 1; count < 30; ++count) {
    const auto tokens = counting(count);
    std::set<int64_t> begins;
    for (uint64_t seed = 0; seed < 120; ++seed) {
      std::vector<int64_t> starts = windows_of_pass(tokens, kContext, seed, 0);
      std::ranges::sort(starts);
      const int64_t begin = starts.at(0);
      begins.insert(begin);
      ASSERT_EQ(std::ssize(starts), (count - 1 - begin) / kContext) << count << " tokens, seed " << seed;
      for (size_t i = 0; i < starts.size(); ++i) ASSERT_EQ(starts[i], begin + static_cast<int64_t>(i) * kContext);
    }
    // A text that a later start would leave without a window begins earlier.
    EXPECT_EQ(std::ssize(begins), std::min<int64_t>(kContext, count - kContext)) << count;
    EXPECT_EQ(*begins.begin(), 0);
  }
}

TEST(Batches, ABatchLargerThanTheTextRepeatsIt) {
  const auto tokens = counting(5);
  Batches batches(tokens, {.batch_size = 7, .context = 4, .seed = 0});
  const Batch batch = batches.next();
  for (int row = 0; row < 7; ++row) EXPECT_EQ(batch.inputs[row * 4], 0);
}

TEST(Batches, RestoringContinuesExactly) {
  const auto tokens = counting(500);
  const BatchOptions options = {.batch_size = 3, .context = 7, .seed = 5};
  Batches original(tokens, options);
  for (int step = 0; step < 60; ++step) {
    Batches resumed(tokens, options);
    resumed.restore(json::parse(original.position().dump()));
    const Batch expected = original.next();
    const Batch batch = resumed.next();
    ASSERT_EQ(batch.inputs, expected.inputs) << step;
    ASSERT_EQ(batch.targets, expected.targets) << step;
    ASSERT_EQ(resumed.position(), original.position()) << step;
  }
}

TEST(Batches, APositionOfOtherOptionsIsRefused) {
  const auto tokens = counting(500);
  Batches batches(tokens, {.batch_size = 3, .context = 7, .seed = 5});
  const auto refused = [&](const char* name, const json& value) {
    json position = batches.position();
    position[name] = value;
    return message_of<Error>([&] { batches.restore(position); });
  };
  EXPECT_EQ(refused("seed", 6), "position of the batches: seed was 6 and is 5");
  EXPECT_EQ(refused("tokens", 499), "position of the batches: tokens was 499 and is 500");
  EXPECT_EQ(refused("pass", -1), "position of the batches: pass is missing or no size");
  EXPECT_EQ(refused("window", "x"), "position of the batches: window is missing or no size");
  EXPECT_EQ(refused("window", 1000).substr(0, 43), "position of the batches: window 1000 of 70 ");
  EXPECT_EQ(message_of<Error>([&] { batches.restore(3); }),
            "position of the batches: batch_size is missing or no size");
}

TEST(Batches, DocumentsAreCountedInEachRow) {
  const auto tokens = counting(41, {0, 3, 4, 10, 16, 33, 40});
  const std::vector<int64_t> five{0, 1, 2, 3, 4}, second{1};
  const Batch batch = windows_at(tokens, 8, five, true);
  EXPECT_EQ(batch.documents, (std::vector<int64_t>{0, 0, 0, 1, 2, 2, 2, 2,  //
                                                   0, 0, 1, 1, 1, 1, 1, 1,  //
                                                   0, 0, 0, 0, 0, 0, 0, 0,  //
                                                   0, 0, 0, 0, 0, 0, 0, 0,  //
                                                   0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(windows_at(tokens, 8, second, true).documents, (std::vector<int64_t>{0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(windows_at(tokens, 8, five).documents.empty());
}

TEST(Batches, AskingForDocumentsDoesNotChangeTheOrder) {
  const auto tokens = counting(500, {0, 100, 103, 350});
  Batches with(tokens, {.batch_size = 3, .context = 7, .seed = 5, .documents = true});
  Batches without(tokens, {.batch_size = 3, .context = 7, .seed = 5});
  for (int step = 0; step < 60; ++step) {
    const Batch batch = with.next();
    ASSERT_EQ(batch.inputs, without.next().inputs);
    for (size_t i = 0; i < batch.inputs.size(); ++i) {  // the token is its own place
      const size_t row = i / 7 * 7;
      const auto starts = tokens.document_starts(batch.inputs[row], batch.inputs[i] + 1);
      ASSERT_EQ(batch.documents[i], static_cast<int64_t>(starts.size())) << step;
    }
  }
}

TEST(Batches, TooLittleTextSaysHowMuchIsNeeded) {
  const auto tokens = counting(8);
  const std::string wanted = "the text has 8 tokens and a context of 8 needs at least 9";
  EXPECT_EQ(message_of<Error>([&] { Batches(tokens, {.batch_size = 1, .context = 8}); }), wanted);
  EXPECT_EQ(message_of<Error>([&] { num_eval_windows(tokens, 8); }), wanted);
  EXPECT_EQ(message_of<Error>([&] { num_eval_windows(counting(1), 1); }),
            "the text has 1 token and a context of 1 needs at least 2");
}

TEST(Batches, SizesBelowOneAreRefused) {
  const auto tokens = counting(8);
  EXPECT_EQ(message_of<UsageError>([&] { Batches(tokens, {.batch_size = 0, .context = 4}); }),
            "batch_size: 0 is below 1");
  EXPECT_EQ(message_of<UsageError>([&] { Batches(tokens, {.batch_size = 1, .context = -1}); }),
            "context: -1 is below 1");
  message_of<UsageError>([&] { num_eval_windows(tokens, 0); });
}

TEST(EvalWindows, StandSideBySideFromTheFirstTokenOn) {
  const auto tokens = counting(22);
  ASSERT_EQ(num_eval_windows(tokens, 5), 4);  // 21 tokens have a target
  ASSERT_EQ(num_eval_windows(counting(21), 5), 4);
  ASSERT_EQ(num_eval_windows(counting(20), 5), 3);
  const std::vector<int64_t> which{3, 0};
  const Batch batch = windows_at(tokens, 5, which);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.columns, 5);
  EXPECT_EQ(batch.inputs, (std::vector<int64_t>{15, 16, 17, 18, 19, 0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.targets, (std::vector<int64_t>{16, 17, 18, 19, 20, 1, 2, 3, 4, 5}));
}

TEST(EvalWindows, AreSpreadEvenly) {
  EXPECT_EQ(spread_windows(10, 4), (std::vector<int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(spread_windows(10, 10), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(spread_windows(3, 64), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(spread_windows(5'000'000'000'000, 3).back(), 3'333'333'333'333);
}

}  // namespace
}  // namespace motet
