// The fact that is asked for stands once; what other values the text has is said, for wrong answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "motet/tasks/task.h"

namespace motet {
namespace {

using nlohmann::json;

std::unique_ptr<Task> task(const json& options) { return make_task(options, "task"); }

// 10 values, 20 tokens of noise, 24 questions, 240 facts.
const json kFacts{{"name", "facts"}, {"tokens", 30},   {"facts", 8},   {"fewest", 3},
                  {"entities", 8},   {"relations", 3}, {"values", 10}, {"noise", 20}};
constexpr int kEpisodes = 4000;

struct Fact {
  int32_t entity, relation, value;
};

std::vector<Fact> facts_of(const Episode& e) {
  std::vector<Fact> all;
  for (const int32_t id : e.ids)
    if (id >= 54) all.push_back({(id - 54) / 30, (id - 54) / 10 % 3, (id - 54) % 10});
  return all;
}

TEST(Facts, TheAnswerIsTheValueOfTheOneFactThatIsAskedFor) {
  const auto own = task(kFacts);
  EXPECT_EQ(own->vocabulary(), 294);
  std::map<std::string, int> slices;
  std::vector<int> places(8);
  int same_entity = 0;
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(1, static_cast<uint64_t>(n), n % 2 == 0);
    ASSERT_EQ(e.ids.size(), 31u);
    ASSERT_TRUE(e.ids[30] >= 30 && e.ids[30] < 54);
    const int32_t entity = (e.ids[30] - 30) / 3, relation = (e.ids[30] - 30) % 3;
    const std::vector<Fact> facts = facts_of(e);
    ASSERT_TRUE(facts.size() >= 3 && facts.size() <= 8);
    std::set<std::vector<int32_t>> others;
    int found = 0;
    for (size_t i = 0; i < facts.size(); ++i) {
      const Fact& fact = facts[i];
      same_entity += fact.entity == entity && fact.relation != relation;
      if (fact.entity != entity || fact.relation != relation) {
        others.insert({fact.value});
        continue;
      }
      ++found, ++places[i];
      EXPECT_EQ(e.answer, std::vector<int32_t>{fact.value});
    }
    ASSERT_EQ(found, 1);
    EXPECT_EQ(others, (std::set<std::vector<int32_t>>{e.others.begin(), e.others.end()}));
    EXPECT_EQ(others.size(), facts.size() - 1) << "all values are different";
    EXPECT_EQ(std::ranges::count_if(e.kinds, [](int64_t k) { return k < 2; }), std::ssize(facts));
    EXPECT_DOUBLE_EQ(chance(*own, e), 1 / static_cast<double>(facts.size()));
    for (const std::string& slice : e.slices) ++slices[slice];
  }
  EXPECT_GT(same_entity, kEpisodes / 2) << "the entity alone does not tell the fact";
  EXPECT_NEAR(slices["facts 2-3"], kEpisodes / 6, 110);  // 3, as fewer are never drawn
  EXPECT_NEAR(slices["facts 4-7"], kEpisodes * 4 / 6, 130);
  EXPECT_NEAR(slices["facts 8"], kEpisodes / 6, 110);
  EXPECT_EQ(slices.size(), 7u);
}

TEST(Facts, DepthIsThePlaceInTheText) {
  const auto own = task(kFacts);
  for (int n = 0; n < 200; ++n) {
    const Episode e = own->episode(4, static_cast<uint64_t>(n), true);
    const auto place = std::ranges::find(e.kinds, 0) - e.kinds.begin();
    EXPECT_EQ(e.slices.back(), "depth " + std::to_string(1 + 4 * place / (std::ssize(e.ids) - 1)) + "/4");
  }
}

// A value of the text that is taken by its place is right as often as a guess.
TEST(Facts, NoPlaceIsLikelierThanAnother) {
  json options = kFacts;
  options["fewest"] = 8;
  const auto own = task(options);
  std::vector<int> places(8);
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(3, static_cast<uint64_t>(n), true);
    const std::vector<Fact> facts = facts_of(e);
    ASSERT_EQ(facts.size(), 8u);
    for (size_t i = 0; i < 8; ++i) places[i] += facts[i].value == e.answer[0];
  }
  for (const int count : places) EXPECT_NEAR(count, kEpisodes / 8, 100);
}

TEST(Facts, AFactAndItsQuestionShareEntityAndRelation) {
  const auto own = task(kFacts);
  const auto parts = own->parts();
  ASSERT_EQ(std::ssize(parts), own->vocabulary());
  EXPECT_EQ(parts[29], (std::vector<int32_t>{29}));
  const int question = 30 + 5 * 3 + 2, fact = 54 + (5 * 3 + 2) * 10 + 7;
  EXPECT_EQ(own->word(question), "entity 5's relation 2?");
  EXPECT_EQ(own->word(fact), "entity 5's relation 2 is value 7");
  EXPECT_EQ(parts[question], (std::vector<int32_t>{30 + 5, 38 + 2, 41 + 10}));
  EXPECT_EQ(parts[fact], (std::vector<int32_t>{30 + 5, 38 + 2, 41 + 7}));
}

}  // namespace
}  // namespace motet
