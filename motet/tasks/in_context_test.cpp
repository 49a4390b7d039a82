// Examples tell the label of the question, whatever their order; no order is another set.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "motet/tasks/task.h"

namespace motet {
namespace {

using nlohmann::json;

// 7 labels, filler, 40 words that may be typical and 10 common ones as a question has them, and 350 that
// have a label too.
json options(const json& more = json::object()) {
  json all{{"name", "episodes"}, {"ways", 4},    {"shots", 3},       {"labels", 7},
           {"words", 3},         {"typical", 5}, {"vocabulary", 40}, {"common", 10}};
  all.update(more);
  return all;
}
std::unique_ptr<Task> task(const json& given) { return make_task(given, "task"); }
constexpr int kEpisodes = 4000, kFiller = 7, kAsked = 8, kShown = 58;

struct Example {
  std::vector<int32_t> words;
  int32_t label;
  auto operator<=>(const Example&) const = default;
};
struct Read {
  std::vector<Example> examples;
  std::vector<int32_t> question;
  size_t filler;
};
Read read(const Episode& e) {
  Read out{};
  while (e.ids[out.filler] == kFiller) ++out.filler;
  for (size_t i = out.filler; i + 3 < e.ids.size(); i += 3) {
    Example example{{}, (e.ids[i] - kShown) % 7};
    for (size_t word = i; word < i + 3; ++word) {
      EXPECT_GE(e.ids[word], kShown);
      EXPECT_EQ((e.ids[word] - kShown) % 7, example.label);
      example.words.push_back((e.ids[word] - kShown) / 7);
    }
    out.examples.push_back(example);
  }
  for (size_t i = e.ids.size() - 3; i < e.ids.size(); ++i) {
    EXPECT_TRUE(e.ids[i] >= kAsked && e.ids[i] < kShown);
    out.question.push_back(e.ids[i] - kAsked);
  }
  return out;
}

TEST(Episodes, TheWordsThatAreNotCommonTellTheLabel) {
  const auto own = task(options());
  EXPECT_EQ(own->vocabulary(), 408);
  EXPECT_EQ(own->length(), 4 * 3 * 3 + 3);
  EXPECT_EQ(own->answers(), 7);
  std::map<std::string, int> slices;
  std::map<int32_t, int> labels;
  for (int n = 0; n < kEpisodes; ++n) {
    const Episode e = own->episode(1, static_cast<uint64_t>(n), n % 2 == 0);
    const Read r = read(e);
    std::map<int32_t, int> count;
    std::set<int32_t> found;
    for (const Example& example : r.examples) {
      ++count[example.label];
      for (const int32_t word : example.words)
        if (word < 40 && std::ranges::find(r.question, word) != r.question.end()) found.insert(example.label);
    }
    EXPECT_EQ(found, std::set<int32_t>{e.answer[0]}) << "words are of one class, and one of the question was shown";
    ASSERT_EQ(count.size(), 4u);
    for (const auto& [label, times] : count) {
      EXPECT_LT(label, 7);
      EXPECT_EQ(times, std::ssize(r.examples) / 4);
      const bool other = std::ranges::find(e.others, std::vector<int32_t>{label}) != e.others.end();
      EXPECT_NE(other, label == e.answer[0]);
    }
    EXPECT_EQ(e.others.size(), 3u);
    EXPECT_DOUBLE_EQ(chance(*own, e), 0.25);
    ASSERT_EQ(e.slices.size(), 1u);
    EXPECT_EQ(e.slices[0], r.examples.size() == 4 ? "shots 1" : "shots 2-3");
    ++slices[e.slices[0]], ++labels[e.answer[0]];
  }
  EXPECT_NEAR(slices["shots 1"], kEpisodes / 3, 130);
  for (const auto& [label, times] : labels) EXPECT_NEAR(times, kEpisodes / 7, 110) << label;
  EXPECT_EQ(labels.size(), 7u);
}

// The label of the first, the last or any other example is right as often as a guess.
TEST(Episodes, NoPlaceIsLikelierThanAnother) {
  for (const char* order : {"random", "alternating", "by_class"}) {
    const auto own = task(options({{"fewer", false}, {"order", order}}));
    std::vector<int> places(12);
    for (int n = 0; n < kEpisodes; ++n) {
      const Episode e = own->episode(2, static_cast<uint64_t>(n), true);
      const Read r = read(e);
      ASSERT_EQ(r.examples.size(), 12u);
      for (size_t i = 0; i < 12; ++i) places[i] += r.examples[i].label == e.answer[0];
    }
    for (const int count : places) EXPECT_NEAR(count, kEpisodes / 4, 130) << order;
  }
}

TEST(Episodes, TheSameExamplesComeInSeveralOrders) {
  for (const char* order : {"random", "alternating", "by_class"}) {
    const auto own = task(options({{"orders", 5}, {"order", order}}));
    std::set<std::vector<Example>> sets;
    size_t different = 0;
    for (uint64_t set = 0; set < 50; ++set) {
      std::set<std::vector<Example>> orders;
      std::vector<Example> sorted;
      for (uint64_t i = 0; i < 5; ++i) {
        const Episode e = own->episode(1, 5 * set + i, true);
        const Read r = read(e);
        EXPECT_EQ(e.slices.back(), "order " + std::to_string(i + 1));
        EXPECT_EQ(r.question, read(own->episode(1, 5 * set, true)).question);
        EXPECT_EQ(e.answer, own->episode(1, 5 * set, true).answer);
        orders.insert(r.examples);
        std::vector<Example> own_sorted = r.examples;
        std::ranges::sort(own_sorted);
        if (i == 0) sorted = own_sorted;
        EXPECT_EQ(own_sorted, sorted);
        const size_t shots = r.examples.size() / 4;
        for (size_t k = 0; k < r.examples.size(); ++k) {
          const size_t same = order == std::string("alternating") ? k % 4 : k / shots * shots;
          if (order != std::string("random")) {
            EXPECT_EQ(r.examples[k].label, r.examples[same].label) << order;
          }
        }
      }
      different += orders.size();
      sets.insert(sorted);
    }
    EXPECT_GT(different, 50u * 4) << "of five, some are alike by chance: four classes have 24 orders";
    EXPECT_EQ(sets.size(), 50u);
  }
}

TEST(Episodes, TheOrderChangesNoExample) {
  std::set<std::vector<Example>> all;
  for (const char* order : {"random", "alternating", "by_class"}) {
    Read r = read(task(options({{"order", order}}))->episode(1, 7, false));
    std::ranges::sort(r.examples);
    all.insert(r.examples);
  }
  EXPECT_EQ(all.size(), 1u);
}

TEST(Episodes, AWordOfAnExampleIsMadeOfItselfAndItsLabel) {
  const auto own = task(options());
  const auto parts = own->parts();
  ASSERT_EQ(std::ssize(parts), own->vocabulary());
  EXPECT_EQ(parts[kFiller], (std::vector<int32_t>{kFiller}));
  EXPECT_EQ(own->word(kAsked + 42), "common 2?");
  EXPECT_EQ(own->word(kShown + 11 * 7 + 3), "word 11 of label 3");
  EXPECT_EQ(parts[kAsked + 42], (std::vector<int32_t>{8 + 42, 58}));
  EXPECT_EQ(parts[kShown + 11 * 7 + 3], (std::vector<int32_t>{8 + 11, 59 + 3}));
}

}  // namespace
}  // namespace motet
