#include "motet/eval/multiple_choice/evaluate.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

class Evaluate : public ::testing::Test {
 protected:
  Evaluate() : model(testing::fresh(testing::tiny({}, {}, 256, 64))) {
    std::string lines;
    for (int i = 0; i < 11; ++i)
      lines += json{{"query", "Question " + std::string(static_cast<size_t>(i % 4), 'x')},
                    {"choices", {"yes", "no " + std::to_string(i), "maybe"}},
                    {"gold", i % 3}}
                   .dump() +
               "\n";
    write_file_atomic(folder / "a.jsonl", lines);
  }

  std::vector<ChoiceResult> evaluate(const std::string& items, int64_t limit = 0) {
    return evaluate_choices(*model, ByteTokenizer(), choice_tasks().back(), {folder / "a.jsonl"},
                            {.limit = limit, .batch_size = 2, .items = items});
  }

  TemporaryFolder folder;
  Model model;
};

TEST_F(Evaluate, AnInterruptedRunGoesOnToTheSameBytes) {
  const ChoiceResult whole = evaluate(folder / "whole").at(0);
  const std::string bytes = read_file(folder / "whole");
  for (size_t size = 0; size <= bytes.size(); size += 101) {
    write_file_atomic(folder / "part", bytes.substr(0, size));
    const ChoiceResult again = evaluate(folder / "part").at(0);
    EXPECT_EQ(read_file(folder / "part"), bytes) << size;
    EXPECT_EQ(again.accuracy.mean, whole.accuracy.mean);
    EXPECT_EQ(again.nats, whole.nats);
  }
}

TEST_F(Evaluate, ItemsOfAnotherEvaluationAreRefusedAndKept) {
  evaluate(folder / "items");
  const std::string bytes = read_file(folder / "items");
  EXPECT_NE(message_of<Error>([&] { evaluate(folder / "items", 5); }).find("belongs to another evaluation (items is"),
            std::string::npos);
  at::NoGradGuard no_grad;
  model->parameters()[0].add_(1);
  EXPECT_NE(message_of<Error>([&] { evaluate(folder / "items"); }).find("belongs to another evaluation (model is"),
            std::string::npos);
  EXPECT_EQ(read_file(folder / "items"), bytes);
  for (const std::string other : {"a text\n", "a text", "{\"a\": 1}\n"}) {
    write_file_atomic(folder / "other", other);
    EXPECT_NE(message_of<Error>([&] { evaluate(folder / "other"); }).find("want another --items"), std::string::npos);
    EXPECT_EQ(read_file(folder / "other"), other);
  }
}

TEST_F(Evaluate, ALineThatIsNoItemIsRefused) {
  evaluate(folder / "items");
  const std::string bytes = read_file(folder / "items");
  const size_t line = bytes.find('\n') + 1;
  for (const auto& [from, to] :
       {std::pair{"\"chosen\":", "\"chosen\":7"}, {"[", "[null,"}, {"\"gold\":", "\"gold\":1"}}) {
    std::string changed = bytes;
    changed.replace(changed.find(from, line), std::string(from).size(), to);
    write_file_atomic(folder / "items", changed);
    EXPECT_NE(message_of<Error>([&] { evaluate(folder / "items"); }).find("items:2: is no item of this evaluation"),
              std::string::npos)
        << to;
  }
}

TEST_F(Evaluate, AFolderStandsForItsFilesAndAllIsTheirSum) {
  write_file_atomic(folder / "b.jsonl", read_file(folder / "a.jsonl"));
  const auto results = evaluate_choices(*model, ByteTokenizer(), choice_tasks().back(), {folder.path().string()}, {});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].file, "b.jsonl");
  EXPECT_EQ(results[2].file, "all");
  EXPECT_EQ(results[2].items, 22);
  EXPECT_DOUBLE_EQ(results[2].accuracy.mean, results[0].accuracy.mean);
}

TEST_F(Evaluate, RefusesWhatHasNoLikelihood) {
  EXPECT_NE(message_of<UsageError>([&] {
              evaluate_choices(*model, ByteTokenizer(), choice_tasks().back(), {}, {});
            }).find("FILE is missing"),
            std::string::npos);
  at::NoGradGuard no_grad;
  model->parameters()[0].fill_(std::nan(""));
  EXPECT_NE(message_of<Error>([&] { evaluate(""); }).find("is nan, want a finite number"), std::string::npos);
}

TEST(Rates, HaveTheStandardErrorOfTheMean) {
  const Rate rate = rate_of({1, 0, 0, 1});
  EXPECT_EQ(rate.mean, 0.5);
  EXPECT_NEAR(rate.error, std::sqrt(0.25 / 3), 1e-15);  // sqrt(p (1 - p) / (n - 1))
  EXPECT_EQ(rate_of({1}).error, 0);
}

}  // namespace
}  // namespace motet
