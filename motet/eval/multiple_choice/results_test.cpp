// What the endings' scores come to, by hand.
#include "motet/eval/multiple_choice/results.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

ScoredItem item(size_t number, size_t gold, const std::vector<int64_t>& bytes, size_t file = 0) {
  ScoredItem made{.file = file, .item = number, .gold = gold};
  made.choices.resize(bytes.size());
  made.bytes = bytes;
  return made;
}

json line_of(const ScoredItem& made, const std::vector<double>& likelihoods) {
  return item_line(made, {likelihoods, std::vector<bool>(likelihoods.size())}, "f");
}

const ChoiceTask& task(const char* name) {
  for (const ChoiceTask& one : choice_tasks())
    if (one.name == name) return one;
  throw std::runtime_error(name);
}

TEST(Results, TheLikeliestEndingIsChosenAndTheFirstOfEqualOnes) {
  const json line = line_of(item(0, 0, {2, 10, 1, 4}), {-4, -5, -3, -3});
  EXPECT_EQ(line["chosen"], 2);                                             // of -3 twice
  EXPECT_EQ(line["chosen_by_length"], 1);                                   // -2, -0.5, -3, -0.75
  EXPECT_EQ(line_of(item(0, 0, {2, 4}), {-1, -2})["chosen_by_length"], 0);  // -0.5 twice
  EXPECT_EQ(line_of(item(0, 0, {1, 1, 1}), {-2, -2, -2})["chosen"], 0);
}

TEST(Results, AccuraciesAndNatsAreThoseOfTheLines) {
  const std::vector<json> lines{line_of(item(0, 0, {2, 10}, 0), {-4, -5}),  // chosen 0, by length 1
                                line_of(item(1, 1, {2, 10}, 0), {-4, -5}),  // the same, the other is right
                                line_of(item(2, 0, {5, 5}, 0), {-1, -2}),   // both 0
                                line_of(item(0, 1, {1, 8}, 1), {-3, -4})};  // chosen 0, by length 1
  const auto results = choice_results({"d/a.jsonl", "b.jsonl"}, lines, task("arc_easy"));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].file, "a.jsonl");
  EXPECT_EQ(results[0].items, 3);
  EXPECT_DOUBLE_EQ(results[0].accuracy.mean, 2.0 / 3);
  EXPECT_DOUBLE_EQ(results[0].accuracy_by_length.mean, 2.0 / 3);
  EXPECT_DOUBLE_EQ(results[0].nats, (4.0 + 5 + 1) / 3);
  EXPECT_EQ(results[1].accuracy.mean, 0);
  EXPECT_EQ(results[1].accuracy_by_length.mean, 1);
  EXPECT_EQ(results[1].nats, 4);
  EXPECT_EQ(results[2].file, "all");
  EXPECT_EQ(results[2].items, 4);
  EXPECT_DOUBLE_EQ(results[2].accuracy.mean, 0.5);
  EXPECT_DOUBLE_EQ(results[2].accuracy_by_length.mean, 0.75);
  EXPECT_DOUBLE_EQ(results[2].accuracy.error, std::sqrt(0.25 / 3));
  EXPECT_EQ(choice_results({"a"}, {lines[0]}, task("arc_easy")).size(), 1u);
}

TEST(Results, OfASingleEndingEachTokenMustBeTheLikeliest) {
  std::vector<json> lines;
  for (const bool greedy : {true, false, true})
    lines.push_back(item_line(item(lines.size(), 0, {3}), {{-1}, {greedy}}, "f"));
  const auto results = choice_results({"a"}, lines, task("lambada"));
  EXPECT_DOUBLE_EQ(results[0].accuracy.mean, 2.0 / 3);
  EXPECT_EQ(results[0].nats, 1);
}

TEST(Results, ALineBelongsToItsItemAlone) {
  const ScoredItem own = item(3, 1, {2, 2}, 1);
  const json line = line_of(own, {-1, -2});
  EXPECT_TRUE(is_line_of(line, own));
  EXPECT_FALSE(is_line_of(line, item(4, 1, {2, 2}, 1)));
  EXPECT_FALSE(is_line_of(line, item(3, 0, {2, 2}, 1)));
  EXPECT_FALSE(is_line_of(line, item(3, 1, {2, 2}, 0)));
  EXPECT_FALSE(is_line_of(line, item(3, 1, {2, 2, 2}, 1)));
  EXPECT_EQ(message_of<Error>([&] { line_of(own, {-1, -INFINITY}); }),
            "f: item 3: the log-likelihood of ending 1 is -inf, want a finite number");
}

}  // namespace
}  // namespace motet
