// Where-select and noisy recall: every episode is solved by its own rule; slices, splits and chance are what they are
// said to be.
#include "motet/tasks/task.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace motet {
namespace {

using nlohmann::json;

std::shared_ptr<const Task> task(const json& options) { return make_task(options, "task"); }

const json kWhere{{"name", "where-select"}, {"fields", 4}, {"values", 3}, {"items", 5}, {"held_out", 3}};
constexpr int kEpisodes = 4000;

// Ids of where-select: 3 values, 4 fields, one that asks, 12 of "s is a", items of base 3.
struct Read {
  std::vector<std::vector<int>> items;
  int s, a, o;
};
Read read_where(const Episode& e) {
  Read out;
  EXPECT_EQ(e.ids.back(), 7);
  for (size_t i = 2; i + 1 < e.ids.size(); ++i) {
    int id = e.ids[i] - 20;
    std::vector<int> fields(4);
    for (int f = 3; f >= 0; --f) fields[f] = id % 3, id /= 3;
    out.items.push_back(fields);
  }
  const int where = e.ids[0] - 8;
  out.s = where / 3, out.a = where % 3, out.o = e.ids[1] - 3;
  return out;
}

TEST(WhereSelect, TheAnswerIsTheFieldOfTheOneItemThatIsFound) {
  const auto own = task(kWhere);
  EXPECT_EQ(own->vocabulary(), 3 + 4 + 1 + 12 + 81);
  EXPECT_EQ(own->length(), 8);
  EXPECT_EQ(own->answers(), 3);
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(1, n, n % 2 == 0);
    ASSERT_EQ(e.ids.size(), 8u);
    for (const int32_t id : e.ids) ASSERT_TRUE(id >= 0 && id < own->vocabulary());
    const Read r = read_where(e);
    ASSERT_NE(r.s, r.o);
    int found = 0;
    for (const auto& item : r.items)
      if (item[r.s] == r.a) {
        ++found;
        EXPECT_EQ(e.answer, std::vector<int32_t>{item[r.o]});
      }
    ASSERT_EQ(found, 1);
  }
}

// Of one who takes any item, or any needle: the answer is told more than once.
TEST(Chance, IsOfAGuessAmongWhatTheTextTells) {
  const auto where = task(kWhere),
             needles = task({{"name", "noisy-recall"}, {"needles", 3}, {"fewer", false}, {"values", 2}}),
             one = task({{"name", "noisy-recall"}, {"needles", 1}});
  double guessed = 0, said = 0;
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = where->episode(1, n, true);
    const Read r = read_where(e);
    double right = 0;
    for (const auto& item : r.items) right += item[r.o] == e.answer[0];
    ASSERT_DOUBLE_EQ(chance(*where, e), right / 5);
    guessed += r.items[static_cast<size_t>(n % 5)][r.o] == e.answer[0], said += right / 5;
  }
  EXPECT_NEAR(guessed, said, 0.03 * kEpisodes);
  EXPECT_NEAR(said / kEpisodes, 0.2 + 0.8 / 3, 0.01);
  said = 0;
  for (int n = 0; n < kEpisodes; ++n) said += chance(*needles, needles->episode(1, n, true));
  EXPECT_NEAR(said / kEpisodes, (1 + 2 * 0.5) / 3, 0.01);
  EXPECT_DOUBLE_EQ(chance(*one, one->episode(1, 0, true)), 1.0 / 8);
}

TEST(WhereSelect, HeldOutPairsAreOfTestsAlone) {
  const auto own = task(kWhere);
  std::map<bool, std::map<std::string, std::set<std::pair<int, int>>>> pairs;
  std::map<std::string, int> count;
  for (int n = 0; n < kEpisodes; ++n)
    for (const bool test : {false, true}) {
      const Episode e = own->episode(1, n, test);
      const Read r = read_where(e);
      ASSERT_EQ(e.slices.size(), 1u);
      pairs[test][e.slices[0]].insert({r.s, r.o});
      if (test) ++count[e.slices[0]];
    }
  EXPECT_EQ(pairs[false].size(), 1u);
  EXPECT_EQ(pairs[false]["seen"].size(), 9u);
  EXPECT_EQ(pairs[true]["held out"].size(), 3u);
  EXPECT_EQ(pairs[true]["seen"], pairs[false]["seen"]);
  for (const auto& pair : pairs[true]["held out"]) EXPECT_FALSE(pairs[false]["seen"].contains(pair));
  EXPECT_NEAR(count["held out"], kEpisodes / 4, 100);
}

TEST(WhereSelect, AGuessIsRightOnceInThree) {
  const auto own = task(kWhere);
  std::vector<int> answers(3), places(5);
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(3, n, false);
    ++answers[e.answer[0]];
    const Read r = read_where(e);
    for (size_t i = 0; i < r.items.size(); ++i)
      if (r.items[i][r.s] == r.a) ++places[i];
  }
  for (const int n : answers) EXPECT_NEAR(n, kEpisodes / 3, 150);
  for (const int n : places) EXPECT_NEAR(n, kEpisodes / 5, 120);
}

TEST(WhereSelect, AnItemIsTheSumOfItsValues) {
  const auto parts = task(kWhere)->parts();
  ASSERT_EQ(parts.size(), 101u);
  EXPECT_EQ(parts[19], (std::vector<int32_t>{19}));
  EXPECT_EQ(parts[20 + 27 * 2 + 9 * 0 + 3 * 1 + 2], (std::vector<int32_t>{20 + 9 + 2, 20 + 6 + 1, 20 + 3 + 0, 20 + 2}));
}

TEST(NoisyRecall, TheKeyStandsOnceAndTellsTheAnswer) {
  const json options{
      {"name", "noisy-recall"}, {"tokens", 16}, {"needles", 4}, {"keys", 8}, {"values", 5}, {"noise", 7}};
  const auto own = task(options);
  EXPECT_EQ(own->vocabulary(), 5 + 8 + 7 + 40);
  EXPECT_EQ(own->length(), 17);
  std::vector<int> needles(5), answers(5), places(16);
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(1, n, false);
    const int key = e.ids.back() - 5;
    ASSERT_TRUE(key >= 0 && key < 8);
    int found = 0, all = 0;
    for (size_t i = 0; i < 16; ++i) {
      ASSERT_TRUE(e.ids[i] >= 13 && e.ids[i] < 60);
      if (e.ids[i] < 20) continue;
      ++all;
      if ((e.ids[i] - 20) / 5 == key) {
        ++found, ++places[i];
        EXPECT_EQ(e.answer, std::vector<int32_t>{(e.ids[i] - 20) % 5});
      }
    }
    ASSERT_EQ(found, 1);
    ++needles[all], ++answers[e.answer[0]];
  }
  EXPECT_EQ(needles[0], 0);
  for (int i = 1; i < 5; ++i) EXPECT_NEAR(needles[i], kEpisodes / 4, 120);
  for (const int n : answers) EXPECT_NEAR(n, kEpisodes / 5, 120);
  for (const int n : places) EXPECT_NEAR(n, kEpisodes / 16, 80);
  json exact = options;
  exact["fewer"] = false;
  for (int n = 0; n < 50; ++n) {
    const Episode e = task(exact)->episode(1, n, false);
    EXPECT_EQ(std::ranges::count_if(e.ids, [](int32_t id) { return id >= 20; }), 4);
  }
}

}  // namespace
}  // namespace motet
