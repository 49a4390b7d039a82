#include "motet/data/masking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

constexpr int64_t kVocabulary = 1000, kMask = 1000;

// Row i holds the tokens i, i + 1 ... of 0 .. 996, in turn.
Batch counting(int64_t rows, int64_t columns) {
  Batch batch{.inputs = {}, .targets = {}, .rows = rows, .columns = columns};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = 0; at < columns; ++at) batch.inputs.push_back((row + at) % 997);
  batch.targets = batch.inputs;
  return batch;
}

std::vector<uint64_t> numbers(int64_t from, int64_t count) {
  std::vector<uint64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), static_cast<uint64_t>(from));
  return all;
}

// How far a count lies from what a part of `all` is expected to be, in standard deviations.
double deviations(int64_t count, double part, int64_t all) {
  const double n = static_cast<double>(all);
  return std::abs(static_cast<double>(count) - part * n) / std::sqrt(n * part * (1 - part));
}

struct Counts {
  int64_t tokens = 0, hidden = 0, mask = 0, same = 0, other = 0;
};

Counts counted(const Batch& before, const Batch& after) {
  Counts n;
  for (size_t i = 0; i < before.inputs.size(); ++i) {
    ++n.tokens;
    if (after.targets[i] == kLeftOut) {
      EXPECT_EQ(after.inputs[i], before.inputs[i]);  // what is not hidden stays
      continue;
    }
    EXPECT_EQ(after.targets[i], before.inputs[i]);
    ++n.hidden;
    n.mask += after.inputs[i] == kMask, n.same += after.inputs[i] == before.inputs[i];
    n.other += after.inputs[i] != kMask && after.inputs[i] != before.inputs[i];
  }
  return n;
}

TEST(Masking, RatesOfAMillionTokensAreThoseOfBert) {
  const Masking masking({.size = kVocabulary, .mask = kMask}, 7);
  const Batch before = counting(8192, 128);
  Batch after = before;
  masking.hide(after, numbers(0, 8192));
  const Counts n = counted(before, after);
  ASSERT_EQ(n.tokens, 1 << 20);
  EXPECT_LT(deviations(n.hidden, 0.15, n.tokens), 3) << n.hidden;
  EXPECT_LT(deviations(n.mask, 0.8, n.hidden), 3) << n.mask;
  const double drawn_itself = 0.1 / kVocabulary;  // of another token that happens to be the same
  EXPECT_LT(deviations(n.other, 0.1 - drawn_itself, n.hidden), 3) << n.other;
  EXPECT_LT(deviations(n.same, 0.1 + drawn_itself, n.hidden), 3) << n.same;
}

TEST(Masking, OtherTokensComeFromTheWholeVocabularyAlike) {
  const Masking masking({.size = 10, .mask = 10}, 3);
  Batch batch{.inputs = std::vector<int64_t>(1 << 20, 4), .targets = {}, .rows = 1 << 13, .columns = 128};
  masking.hide(batch, numbers(0, 1 << 13));
  std::vector<int64_t> seen(11);
  int64_t others = 0;
  for (size_t i = 0; i < batch.inputs.size(); ++i)
    if (batch.targets[i] == 4 && batch.inputs[i] != 4 && batch.inputs[i] != 10)
      ++seen[static_cast<size_t>(batch.inputs[i])], ++others;
  for (size_t id = 0; id < 10; ++id)
    if (id != 4) {
      EXPECT_LT(deviations(seen[id], 1.0 / 9, others), 4) << id;  // of nine counts
    }
}

TEST(Masking, ARowsMasksDependOnKeyNumberAndPlaceAlone) {
  const Masking masking({.size = kVocabulary, .mask = kMask}, 7), other({.size = kVocabulary, .mask = kMask}, 8);
  Batch whole = counting(6, 64), again = whole, else_where = whole;
  masking.hide(whole, numbers(40, 6));
  other.hide(else_where, numbers(40, 6));
  EXPECT_NE(whole.targets, else_where.targets);
  masking.hide(again, numbers(46, 6));
  EXPECT_NE(whole.targets, again.targets);  // other rows, other masks: the next pass over a text sees others
  for (int64_t row = 5; row >= 0; --row) {  // one by one, backwards
    const Batch all = counting(6, 64);
    Batch one{.inputs = {all.inputs.begin() + row * 64, all.inputs.begin() + (row + 1) * 64},
              .targets = {},
              .rows = 1,
              .columns = 64};
    masking.hide(one, numbers(40 + row, 1));
    EXPECT_TRUE(std::equal(one.inputs.begin(), one.inputs.end(), whole.inputs.begin() + row * 64)) << row;
    EXPECT_TRUE(std::equal(one.targets.begin(), one.targets.end(), whole.targets.begin() + row * 64)) << row;
  }
}

TEST(Masking, SpecialTokensAreNeverHiddenAndEveryOtherRowHasSomethingToLearn) {
  MaskedVocabulary vocabulary{.size = kVocabulary, .mask = kMask, .special = std::vector<bool>(kVocabulary)};
  for (const int64_t id : {3, 4, 5}) vocabulary.special[static_cast<size_t>(id)] = true;
  const Masking masking(vocabulary, 1);
  Batch batch{.inputs = {}, .targets = {}, .rows = 5000, .columns = 4};
  for (int64_t row = 0; row < 5000; ++row) batch.inputs.insert(batch.inputs.end(), {3, 4, row % 2 ? 5 : 77, 5});
  masking.hide(batch, numbers(0, 5000));
  for (size_t i = 0; i < batch.inputs.size(); i += 4) {
    const bool learns = i / 4 % 2 == 0;
    EXPECT_EQ(batch.targets[i], kLeftOut);
    EXPECT_EQ(batch.targets[i + 2], learns ? 77 : kLeftOut);
  }
}

TEST(Masking, WordsAreHiddenAsAWhole) {
  // Tokens below 100 begin a word; a word is one of them and three behind it, but for the end of a special token.
  MaskedVocabulary vocabulary{.size = kVocabulary,
                              .mask = kMask,
                              .special = std::vector<bool>(kVocabulary),
                              .begins_word = std::vector<bool>(kVocabulary)};
  for (size_t id = 0; id < 100; ++id) vocabulary.begins_word[id] = true;
  vocabulary.special[900] = true;
  const Masking masking(vocabulary, 5);
  Batch batch{.inputs = {}, .targets = {}, .rows = 4000, .columns = 128};
  for (int64_t i = 0; i < 4000 * 128; ++i)
    batch.inputs.push_back(i % 64 == 63 ? 900 : i % 4 == 0 ? i % 100 : 100 + i % 800);
  const Batch before = batch;
  masking.hide(batch, numbers(0, 4000));
  int64_t words = 0, hidden = 0;
  for (size_t i = 0; i < batch.inputs.size(); i += 4) {
    const size_t length = i % 64 == 60 ? 3 : 4;
    ++words, hidden += batch.targets[i] != kLeftOut;
    for (size_t k = 1; k < length; ++k) ASSERT_EQ(batch.targets[i + k] == kLeftOut, batch.targets[i] == kLeftOut) << i;
    if (length == 3) {
      ASSERT_EQ(batch.targets[i + 3], kLeftOut) << i;
    }
  }
  EXPECT_LT(deviations(hidden, 0.15, words), 3);
  const Counts n = counted(before, batch);
  EXPECT_LT(deviations(n.mask, 0.8, n.hidden), 3) << "each token of a word is replaced on its own";
}

TEST(Masking, AWordEndsWithItsDocument) {
  MaskedVocabulary vocabulary{.size = kVocabulary, .mask = kMask, .begins_word = std::vector<bool>(kVocabulary)};
  const Masking masking(vocabulary, 5);  // no token begins a word: a document is one
  Batch batch{.inputs = {}, .targets = {}, .documents = {}, .rows = 2000, .columns = 8};
  for (int64_t i = 0; i < 16000; ++i) batch.inputs.push_back(i % 900), batch.documents.push_back(i % 8 < 3 ? 0 : 1);
  masking.hide(batch, numbers(0, 2000));
  int64_t unlike = 0;
  for (size_t i = 0; i < batch.inputs.size(); i += 8) {
    EXPECT_EQ(batch.targets[i] == kLeftOut, batch.targets[i + 2] == kLeftOut);
    EXPECT_EQ(batch.targets[i + 3] == kLeftOut, batch.targets[i + 7] == kLeftOut);
    unlike += (batch.targets[i] == kLeftOut) != (batch.targets[i + 3] == kLeftOut);
  }
  EXPECT_GT(unlike, 1500);  // both are hidden in 2 % of the rows, and where chance hides none, one is
}

TEST(Masking, ARowWithoutANumberIsAnError) {
  Batch batch = counting(2, 8);
  EXPECT_EQ(testing::message_of<Error>([&] { Masking({.size = 9, .mask = 9}, 1).hide(batch, numbers(0, 1)); }),
            "masking: 1 numbers of rows, want 2");
}

}  // namespace
}  // namespace motet
