#include "motet/eval/multiple_choice/evaluate.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

class Evaluate : public ::testing::Test {
 protected:
  Evaluate() : model(testing::fresh(testing::tiny({}, {}, 300, 64))) {
    std::string lines;
    for (int i = 0; i < 11; ++i)
      lines += json{{"query", "Question " + std::string(static_cast<size_t>(i % 4), 'x')},
                    {"choices", {"yes", "no " + std::to_string(i), "maybe"}},
                    {"gold", i % 3}}
                   .dump() +
               "\n";
    write_file_atomic(folder / "a.jsonl", lines);
  }

  std::vector<ChoiceResult> evaluate(const std::string& items, int64_t limit = 0, int64_t context = 0,
                                     const ChoiceTask& task = choice_tasks().back()) {
    return evaluate_choices(*model, ByteTokenizer(), task, {folder / "a.jsonl"},
                            {.limit = limit, .batch_size = 2, .context = context, .items = items});
  }

  // Why the items of a file are not taken over.
  std::string refusal(const std::string& items, const ChoiceTask& task = choice_tasks().back()) {
    const std::string message = message_of<Error>([&] { evaluate(items, 0, 0, task); });
    return message.substr(message.find("belongs to"), std::string("belongs to another evaluation (items").size());
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
  const Tensor last = model->parameters()[0].view(-1).slice(0, -1);
  ASSERT_GT(model->parameters()[0].numel(), 4096);
  last.add_(1);
  EXPECT_NE(message_of<Error>([&] { evaluate(folder / "items"); }).find("belongs to another evaluation (model is"),
            std::string::npos);
  EXPECT_EQ(read_file(folder / "items"), bytes);
  for (const std::string other : {"a text\n", "a text", "{\"a\": 1}\n"}) {
    write_file_atomic(folder / "other", other);
    EXPECT_NE(message_of<Error>([&] { evaluate(folder / "other"); }).find("want another --items"), std::string::npos);
    EXPECT_EQ(read_file(folder / "other"), other);
  }
}

TEST_F(Evaluate, ItemsAreKnownByTheirTokensTheirTaskAndAllWeights) {
  evaluate(folder / "items");
  const ChoiceTask& other = *(choice_tasks().end() - 2);  // of the same form
  EXPECT_EQ(refusal(folder / "items", other).substr(31), "task ");
  std::string questions = read_file(folder / "a.jsonl");
  const std::string asked = questions;
  questions.replace(questions.find("yes"), 3, "yep");
  write_file_atomic(folder / "a.jsonl", questions);
  EXPECT_EQ(refusal(folder / "items"), "belongs to another evaluation (items");
  write_file_atomic(folder / "a.jsonl", asked);
  EXPECT_NO_THROW(evaluate(folder / "items"));
  model->set_autocast(at::kBFloat16);
  EXPECT_EQ(refusal(folder / "items"), "belongs to another evaluation (dtype");
  model->set_autocast({});
  for (const auto& module : model->modules())
    if (auto* layer = module->as<LinearImpl>()) layer->precision = Precision::high;
  EXPECT_EQ(refusal(folder / "items"), "belongs to another evaluation (dtype");
  for (const auto& module : model->modules())
    if (auto* layer = module->as<LinearImpl>()) layer->precision = Precision::highest;
  at::NoGradGuard no_grad;
  model->parameters().back().add_(1);
  EXPECT_EQ(refusal(folder / "items"), "belongs to another evaluation (model");
  model->prepare(WeightType::int8);
  EXPECT_EQ(refusal(folder / "items"), "belongs to another evaluation (model");
  evaluate(folder / "narrow");
  model->to(at::kCPU);  // what was kept comes back
  model->parameters().back().neg_();
  model->prepare(WeightType::int8);
  EXPECT_EQ(refusal(folder / "narrow"), "belongs to another evaluation (model");
}

TEST_F(Evaluate, AShorterContextCutsTheQuestions) {
  const double whole = evaluate(folder / "whole").at(0).nats, cut = evaluate(folder / "cut", 0, 12).at(0).nats;
  EXPECT_NE(whole, cut);
  EXPECT_EQ(read_file(folder / "whole").find("\"cut\":"), std::string::npos);
  EXPECT_NE(read_file(folder / "cut").find("\"cut\":true"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { evaluate("", 0, 65); }).find("at most the model's context of 64"),
            std::string::npos);
}

TEST_F(Evaluate, TheLimitIsOfEachFile) {
  write_file_atomic(folder / "b.jsonl", read_file(folder / "a.jsonl"));
  const std::vector<std::string> files{folder / "a.jsonl", folder / "b.jsonl"};
  const auto results = evaluate_choices(*model, ByteTokenizer(), choice_tasks().back(), files, {.limit = 3});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].items, 3);
  EXPECT_EQ(results[1].items, 3);
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
  write_file_atomic(folder / "notes.txt", "no questions");
  const auto results = evaluate_choices(*model, ByteTokenizer(), choice_tasks().back(), {folder.path().string()}, {});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].file, "b.jsonl");
  EXPECT_EQ(results[2].file, "all");
  EXPECT_EQ(results[2].items, 22);
  EXPECT_DOUBLE_EQ(results[2].accuracy.mean, results[0].accuracy.mean);
}

TEST_F(Evaluate, AnotherDeviceAnswersAlike) {
  const auto here = evaluate(folder / "here");
  Model away(model->config(), testing::other_device());
  away->initialize(1);
  model = away;
  const auto there = evaluate(folder / "there");
  EXPECT_EQ(there.at(0).accuracy.mean, here.at(0).accuracy.mean);
  EXPECT_NEAR(there.at(0).nats, here.at(0).nats, 1e-5 * here.at(0).nats);
  const auto head = [&](const char* name) {
    return json::parse(read_file(folder / name).substr(0, read_file(folder / name).find('\n')));
  };
  EXPECT_EQ(head("there")["model"], head("here")["model"]) << "equal weights are one model on any device";
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
