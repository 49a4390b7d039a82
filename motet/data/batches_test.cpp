#include "motet/data/batches.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

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
    const Batch batch = batches.batch(step);
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
    const Batch from_a = a.batch(step);
    EXPECT_EQ(from_a.inputs, b.batch(step).inputs);
    differs |= from_a.inputs != c.batch(step).inputs;
  }
  EXPECT_TRUE(differs);
}

TEST(Batches, TheOrderIsTheSameOnEveryMachine) {
  const auto tokens = counting(100);
  Batches batches(tokens, {.batch_size = 3, .context = 8, .seed = 1});
  const Batch batch = batches.batch(0);
  EXPECT_EQ((std::vector<int64_t>{batch.inputs[0], batch.inputs[8], batch.inputs[16]}),
            (std::vector<int64_t>{44, 52, 84}));
}

// The first tokens of the windows of a pass, which are their places in counting(), in the order in which they come.
std::vector<int64_t> windows_of_pass(const TokenSequence& tokens, int64_t context, uint64_t seed, uint64_t pass) {
  Batches batches(tokens, {.batch_size = 1, .context = context, .seed = seed});
  std::vector<int64_t> starts;
  for (int64_t step = 0; true; ++step) {
    const RowSource from = batches.sources(step, 0, 1)[0];
    if (from.pass > pass) return starts;
    if (from.pass < pass) continue;
    EXPECT_EQ(from.window, starts.size());
    starts.push_back(batches.batch(step).inputs[0]);
    EXPECT_EQ(static_cast<int64_t>(from.token), starts.back());
  }
}

TEST(Batches, EachWindowComesOnceInAPass) {
  const auto tokens = counting(16 * 10 + 1);
  std::vector<int64_t> starts = windows_of_pass(tokens, 16, 3, 0);
  EXPECT_GE(starts.size(), 9u);
  std::ranges::sort(starts);
  for (size_t i = 1; i < starts.size(); ++i) EXPECT_EQ(starts[i], starts[i - 1] + 16);
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
  const Batch batch = batches.batch(0);
  for (int row = 0; row < 7; ++row) EXPECT_EQ(batch.inputs[row * 4], 0);
}

TEST(Batches, WhatAStepReadsDependsOnNothingThatWasReadBefore) {
  const auto tokens = counting(500);
  const BatchOptions options = {.batch_size = 3, .context = 7, .seed = 5};  // 70 or 71 windows a pass
  Batches in_order(tokens, options), jumping(tokens, options);
  std::vector<Batch> all;
  for (int64_t step = 0; step < 120; ++step) all.push_back(in_order.batch(step));
  for (int64_t i = 0; i < 120; ++i) {
    const int64_t step = i * 77 % 120;
    ASSERT_EQ(jumping.batch(step).inputs, all[static_cast<size_t>(step)].inputs) << step;
    ASSERT_EQ(Batches(tokens, options).batch(step).targets, all[static_cast<size_t>(step)].targets) << step;
  }
}

TEST(Batches, RowsOfABatchAreThoseOfTheWhole) {
  const auto tokens = counting(500, {0, 100, 103, 350});
  Batches batches(tokens, {.batch_size = 5, .context = 7, .seed = 5, .documents = true});
  for (const int64_t step : {0, 13, 14, 200}) {
    const Batch whole = batches.batch(step);
    for (int64_t first = 0; first < 5; ++first)
      for (int64_t count = 1; first + count <= 5; ++count) {
        const Batch part = batches.rows(step, first, count);
        const auto cut = [&](const std::vector<int64_t>& of) {
          return std::vector<int64_t>(of.begin() + first * 7, of.begin() + (first + count) * 7);
        };
        ASSERT_EQ(part.rows, count);
        ASSERT_EQ(part.inputs, cut(whole.inputs));
        ASSERT_EQ(part.targets, cut(whole.targets));
        ASSERT_EQ(part.documents, cut(whole.documents));
      }
  }
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
    const Batch batch = with.batch(step);
    ASSERT_EQ(batch.inputs, without.batch(step).inputs);
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

// Tokens 0 to 99 and 100 to 139: two parts, 3 to 1.
std::vector<BatchPart> two_parts() { return {{0, 100, 3}, {100, 40, 1}}; }

TEST(Batches, PartsHaveTheirRowsAndTheirPasses) {
  const auto tokens = counting(140);
  Batches mixed(tokens, {.batch_size = 4, .context = 8, .seed = 1}, two_parts());
  const MemoryTokens first = counting(100);
  Batches alone(first, {.batch_size = 1, .context = 8, .seed = 1});
  int64_t row = 0;
  std::map<uint64_t, std::set<uint64_t>> windows;  // of the second part, by pass
  for (int64_t step = 0; step < 100; ++step) {
    const Batch batch = mixed.batch(step);
    int second = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int64_t begin = batch.inputs[i * 8], end = batch.targets[i * 8 + 7];
      ASSERT_EQ(begin < 100, end < 100);  // no window lies in two parts
      if (begin >= 100) {
        ++second;
        continue;
      }
      ASSERT_EQ(begin, alone.batch(row++).inputs[0]);
    }
    ASSERT_EQ(second, 1);
    for (const RowSource& from : mixed.sources(step, 0, 4)) {
      if (from.token < 100) continue;
      ASSERT_TRUE(windows[from.pass].insert(from.token).second);
    }
  }
  ASSERT_GT(windows.size(), 20u);
  windows.erase(windows.rbegin()->first);  // not yet whole
  for (const auto& [pass, own] : windows) EXPECT_EQ(own.size(), 4u) << pass;
}

TEST(Batches, PartsDoNotShareAnOrder) {
  const auto tokens = counting(2000);
  Batches mixed(tokens, {.batch_size = 2, .context = 8, .seed = 1}, {{0, 1000}, {1000, 1000}});
  int same = 0;
  for (int64_t step = 0; step < 100; ++step) {
    const auto from = mixed.sources(step, 0, 2);
    same += from[0].token + 1000 == from[1].token || from[1].token + 1000 == from[0].token;
  }
  EXPECT_LT(same, 20);
}

TEST(Batches, SayWhatWasReadOfEachPart) {
  const auto tokens = counting(140);
  Batches mixed(tokens, {.batch_size = 4, .context = 8, .seed = 1}, two_parts());
  for (const int64_t steps : {0, 1, 3, 50}) {
    const std::vector<PartUse> use = mixed.use(steps);
    ASSERT_EQ(use.size(), 2u);
    EXPECT_EQ(use[0].tokens, static_cast<uint64_t>(steps) * 24);
    EXPECT_EQ(use[1].tokens, static_cast<uint64_t>(steps) * 8);
    // A pass has 11 or 12 windows of the first part and 4 of the second.
    EXPECT_NEAR(use[0].passes, static_cast<double>(steps) * 3 / 11.5, 0.05 * static_cast<double>(steps));
    EXPECT_DOUBLE_EQ(use[1].passes, static_cast<double>(steps) / 4);
  }
}

TEST(Batches, APartThatIsTooShortIsRefused) {
  const auto tokens = counting(100);
  EXPECT_EQ(message_of<Error>([&] { Batches(tokens, {.context = 8}, {{0, 92}, {92, 8}}); }),
            "the text has 8 tokens and a context of 8 needs at least 9");
}

}  // namespace
}  // namespace motet
