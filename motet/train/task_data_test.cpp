// A run of a task: its configuration, its episodes, the model that reads them.
#include "motet/train/task_data.h"

#include <gtest/gtest.h>

#include "motet/core/testing.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

const json kBase{{"train", {{"batch_size", 4}, {"steps", 40}}}, {"model", {{"hidden_size", 16}}}};

RunConfig of_task(const Overrides& set, const json& base = kBase) { return read_run_config(request_of(set), base); }

std::string refused(const Overrides& set, const json& base = kBase) {
  return message_of<UsageError>([&] { of_task(set, base); });
}

TEST(TaskData, ATaskOfARunHasAllOfItsOptionsAndItsLengthIsTheContext) {
  const RunConfig run = of_task({{"data.task.name", "noisy-recall"}, {"data.task.tokens", "20"}});
  EXPECT_EQ(run.task.dump(),
            R"({"fewer":true,"keys":64,"name":"noisy-recall","needles":8,"noise":128,"tokens":20,"values":8})");
  EXPECT_EQ(run.train.context, 22);
  EXPECT_EQ(run.resolved()["data"]["task"], run.task);
  const RunConfig again = of_task({}, run.resolved());
  EXPECT_EQ(again.resolved(), run.resolved());
  EXPECT_EQ(of_task({{"data.task.name", "passkey"}}).train.context, 131) << "an answer of three tokens";
  EXPECT_FALSE(small_run().resolved()["data"].contains("task"));
}

TEST(TaskData, AnotherTaskReplacesOneWithItsOptionsAndATextReplacesATask) {
  const json own =
      of_task({{"data.task.name", "where-select"}, {"data.task.fields", "4"}, {"data.task.held_out", "3"}}).resolved();
  EXPECT_EQ(of_task({{"data.task.name", "noisy-recall"}}, own).task["keys"], 64);
  const RunConfig kept = of_task({{"data.task.name", "where-select"}, {"data.task.items", "3"}}, own);
  EXPECT_EQ(kept.task["fields"], 4);
  EXPECT_EQ(kept.task["items"], 3);
  EXPECT_EQ(of_task({{"data.task.items", "3"}}, own).task["fields"], 4);
  EXPECT_TRUE(of_task({{"data.text", "a.txt"}}, own).task.is_null());
  json text = own;
  text["data"] = {{"text", "a.txt"}};
  EXPECT_TRUE(of_task({{"data.task.name", "facts"}}, text).texts.empty());
  json request = request_of({});
  request["texts"] = {"a.txt"};
  EXPECT_TRUE(read_run_config(request, own).task.is_null());
}

TEST(TaskData, WhatATaskHasNoUseForIsRefused) {
  EXPECT_EQ(refused({{"data.task.tokens", "3"}}), "data.task: want a table with the name of a task");
  EXPECT_EQ(refused({{"data.task", "facts"}}), "--set: 'data.task' is a section, want one of its keys");
  EXPECT_EQ(refused({{"data.task.name", "facts"}, {"data.tokenizer", "bytes"}}),
            "data.tokenizer: a task has no text, want it left out");
  EXPECT_EQ(refused({{"data.task.name", "facts"}, {"train.context", "64"}}),
            "train.context: 64, want the 18 tokens of an episode and its answer, or it left out");
  EXPECT_EQ(refused({{"data.task.name", "facts"}, {"model.causal", "false"}}),
            "model.causal: false, want true: a task's answer stands behind its question");
  EXPECT_EQ(refused({{"data.task.name", "facts"}, {"data.text", "a"}}), "data.text and data.task: want one of them");
  json both = request_of({{"data.task.name", "facts"}});
  both["texts"] = {"a.txt"};
  EXPECT_EQ(message_of<UsageError>([&] { read_run_config(both, kBase); }), "--task and a text: want one of them");
  EXPECT_NE(refused({{"data.task.name", "facts"}, {"data.task.token", "3"}}).find("nearest is 'data.task.tokens'"),
            std::string::npos);
  EXPECT_EQ(
      message_of<UsageError>([] { task_data(of_task({{"data.task.name", "facts"}, {"train.data_seed", "999999"}})); }),
      "train.data_seed: 999999 is that of the tests, want another");
}

TEST(TaskData, TrainingIsOfAnotherSeedThanTests) {
  const RunConfig run = of_task({{"data.task.name", "noisy-recall"}, {"train.data_seed", "4"}});
  const TextData data = task_data(run);
  const auto own = make_task(run.task, "task");
  const auto row = static_cast<uint64_t>(own->row_length());
  const auto ids = [&](uint64_t seed, uint64_t number, bool test) {
    const Episode e = own->episode(seed, number, test);
    std::vector<int64_t> all(e.ids.begin(), e.ids.end());
    all.insert(all.end(), e.answer.begin(), e.answer.end());
    return all;
  };
  EXPECT_EQ(data.train->slice(7 * row, row), ids(5, 7, false));
  EXPECT_EQ(data.validation->slice(7 * row, row), ids(1'000'000, 7, true));
  EXPECT_EQ(data.validation->size(), 10'000 * row + 1);
  EXPECT_EQ(data.vocabulary(), own->vocabulary());
  EXPECT_EQ(data.words(std::vector<int64_t>{3}), std::vector<std::string>{"3"});
  const auto hash = [](const Overrides& set) { return task_data(of_task(set)).hashes.at("episodes"); };
  EXPECT_EQ(hash({{"data.task.name", "noisy-recall"}, {"train.data_seed", "4"}}), data.hashes["episodes"]);
  EXPECT_NE(hash({{"data.task.name", "noisy-recall"}, {"train.data_seed", "5"}}), data.hashes["episodes"]);
}

TEST(TaskData, CompositeTokensAreSumsOfPartsThatDoNotLearn) {
  RunConfig run = of_task({{"data.task.name", "where-select"}, {"data.task.fields", "3"}, {"data.task.held_out", "1"}});
  const auto own = make_task(run.task, "task");
  EXPECT_EQ(fixed_parameters(*own), std::vector<std::string>{"model.embed_tokens.weight"});
  EXPECT_TRUE(fixed_parameters(*make_task({{"name", "noisy-recall"}}, "task")).empty());
  fit_to_task(run.model, *own);
  EXPECT_EQ(run.model.embedding_size, 4 + 3 + 1 + 12 + 12);
  fit_to_task(run.model, *own);  // again is the same
  const auto many = make_task({{"name", "episodes"}, {"vocabulary", 9000}, {"common", 1000}, {"labels", 90}}, "task");
  ModelOptions options;
  EXPECT_EQ(message_of<UsageError>([&] { fit_to_task(options, *many); }),
            "data.task: 910091 tokens of 10182 parts make a table of 9266546562 numbers, want at most 268435456");
  run.model.embedding_size = 5;
  EXPECT_EQ(message_of<UsageError>([&] { fit_to_task(run.model, *own); }),
            "model.embedding_size: 5, want the 32 parts of the task's tokens");
  run.model.embedding_size = 32;
  Model model(run.model_config(own->vocabulary()));
  model->initialize(1);
  fix_embedding(*model, *own, 1);
  const Tensor table = model->named_parameters()["model.embed_tokens.weight"];
  EXPECT_FALSE(table.requires_grad());
  EXPECT_EQ(table[20 + 16 * 2 + 4 * 0 + 3].nonzero().flatten().sum().item<int64_t>(), (20 + 2) + (24 + 0) + (28 + 3));
  EXPECT_EQ(table.sum().item<double>(), 20 + 64 * 3);
}

}  // namespace
}  // namespace motet
