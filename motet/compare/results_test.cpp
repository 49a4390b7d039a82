#include "motet/compare/results.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/compare/compare.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/testing.h"
#include "motet/train/run_checkpoints.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;
namespace fs = std::filesystem;

struct Compared {
  RunConfig run = small_run({{"train.steps", "12"}, {"train.eval_every", "4"}, {"model.hidden_size", "32"}});
  TextData data = load_text_data(run);

  CompareOptions options(const fs::path& folder, int64_t seeds = 2, const char* arms = "mha,dcmha") const {
    return {.arms = parse_arms(arms, json::object()),
            .seeds = seeds,
            .match = Match::none,
            .jobs = 1,
            .threads = 1,
            .folder = folder};
  }
  Comparison made(const CompareOptions& o, Results before = {}) const {
    std::vector<Comparison> all = planned_comparisons(run, data, o);
    run_comparisons(all, run, data, o, std::move(before));
    return all.front();
  }
};

void expect_same(const Comparison& a, const Comparison& b) {
  ASSERT_EQ(a.arms.size(), b.arms.size());
  for (size_t i = 0; i < a.arms.size(); ++i) {
    EXPECT_EQ(a.arms[i].losses, b.arms[i].losses);
    for (size_t k = 0; k < a.arms[i].runs.size(); ++k) {
      const TrainResult &own = a.arms[i].runs[k], &other = b.arms[i].runs[k];
      ASSERT_EQ(own.steps.size(), other.steps.size());
      for (size_t s = 0; s < own.steps.size(); ++s) {
        EXPECT_EQ(own.steps[s].step, other.steps[s].step);
        EXPECT_EQ(own.steps[s].loss, other.steps[s].loss);
      }
      ASSERT_EQ(own.evals.size(), other.evals.size());
      for (size_t s = 0; s < own.evals.size(); ++s) {
        EXPECT_EQ(own.evals[s].loss, other.evals[s].loss);
        EXPECT_EQ(own.evals[s].windows, other.evals[s].windows);
        EXPECT_EQ(own.evals[s].bytes, other.evals[s].bytes);
      }
    }
    const Tensor mine = a.arms[i].model.ptr()->parameters()[0], theirs = b.arms[i].model.ptr()->parameters()[0];
    EXPECT_TRUE(mine.equal(theirs));
  }
}

TEST(Results, AComparisonThatEndedIsReadBackWithoutTraining) {
  const Compared compared;
  const TemporaryFolder folder;
  const Comparison whole = compared.made(compared.options(folder.path()));
  const std::string metrics = read_file(folder.path() / "metrics.jsonl"),
                    results = read_file(folder.path() / "results.json");
  const Comparison again = compared.made(compared.options(folder.path()), read_results(folder.path()));
  expect_same(whole, again);
  EXPECT_EQ(again.arms[1].tokens_per_second, whole.arms[1].tokens_per_second);
  EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(folder.path() / "results.json"), results);
  Results other = read_results(folder.path());
  for (auto& [name, measured] : other.measured) measured.tokens_per_second = 1, ++measured.threads;
  EXPECT_GT(compared.made(compared.options(folder.path()), other).arms[1].tokens_per_second, 1)
      << "of other threads, it is measured anew";
}

TEST(Results, TheCommandsAreReadBack) {
  const TemporaryFolder folder;
  Results results;
  results.comparison = json::object();
  results.commands = {"motet compare a.txt", "motet compare --resume b"};
  results.write(folder.path());
  EXPECT_EQ(read_results(folder.path()).commands, results.commands);
  json earlier = read_json((folder.path() / "results.json").string());
  earlier.erase("commands");
  write_file_atomic(folder.path() / "results.json", earlier.dump());
  EXPECT_TRUE(read_results(folder.path()).commands.empty());
}

// The folder as a process that was killed in a run leaves it: one run ended, one at its checkpoint with lines behind it
// and half a line.
TEST(Results, AComparisonThatWasKilledGoesOn) {
  const Compared compared;
  const TemporaryFolder whole_folder, folder;
  const Comparison whole = compared.made(compared.options(whole_folder.path()));
  {
    compared.made(compared.options(folder.path(), 1, "mha"));
    Results results = read_results(folder.path());
    const TrainOptions own = arm_train(compared.run, whole.arms[1].arm, 0);
    Model model(whole.arms[1].config);
    model->initialize(static_cast<uint64_t>(own.seed));
    Trainer trainer(model, compared.data, own);
    std::string lines = read_file(folder.path() / "metrics.jsonl");
    const auto write = [&](json record) {
      record["mechanism"] = "dcmha", record["seed"] = own.seed;
      lines += record.dump() + "\n";
    };
    for (int i = 0; i < 7; ++i) {
      write(metrics_record(trainer.step()));
      if (trainer.evaluation_due() && i < 7) write(metrics_record(trainer.evaluate()));
      if (i == 4)
        CheckpointWriter(folder.path() / "running/dcmha-seed1", 1, 0, false)
            .save(
                {.state = trainer.state(), .model = model_files(trainer.model(), {}), .optimizer = trainer.tensors()});
    }
    write_file_atomic(folder.path() / "metrics.jsonl", lines + R"({"step":8,"lo)");
  }
  const Comparison gone_on = compared.made(compared.options(folder.path()), read_results(folder.path()));
  expect_same(whole, gone_on);
  EXPECT_FALSE(fs::exists(folder.path() / "running"));
  const Comparison again = compared.made(compared.options(folder.path()), read_results(folder.path()));
  expect_same(whole, again);
}

TEST(Results, WhatAKilledProcessHadHalfWrittenIsRemoved) {
  const Compared compared;
  const TemporaryFolder folder;
  const CompareOptions options = compared.options(folder.path(), 1, "mha");
  compared.made(options);
  const std::string gone = text(".tmp-", std::numeric_limits<int32_t>::max(), "-0");  // no process has this number
  const fs::path model = folder.path() / "models" / text(".mha-seed1", gone),
                 file = folder.path() / text(".results.json", gone);
  fs::create_directories(model / "inside");
  write_file_atomic(file, "half");
  compared.made(options, read_results(folder.path()));
  EXPECT_FALSE(fs::exists(model));
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(fs::exists(folder.path() / "models/mha-seed1/model.safetensors"));
}

TEST(Results, AComparisonThatWasStoppedWhileSpeedWasMeasuredGoesOn) {
  const TemporaryFolder folder, whole;
  const Compared compared;
  const CompareOptions options = compared.options(folder.path());
  interrupt(SIGINT);
  const std::string message = message_of<Interrupted>([&] { compared.made(options); });
  resume_after_interrupt();
  EXPECT_EQ(message,
            "compare: stopped while speed was measured; to go on: motet compare --resume " + folder.path().string());
  const Comparison again = compared.made(options, read_results(folder.path()));
  expect_same(again, compared.made(compared.options(whole.path())));
}

TEST(Results, ABudgetOfMinutesIsKeptWithItsThreads) {
  Compared compared;
  CompareOptions options = compared.options("");
  options.threads = 2;
  EXPECT_FALSE(comparison_record(compared.run, compared.data, options).contains("threads"));
  compared.run.train.minutes = 1;
  const json record = comparison_record(compared.run, compared.data, options);
  EXPECT_EQ(record["threads"], 2);
  EXPECT_EQ(record["jobs"], 1);
}

TEST(Results, SeedsAndContendersAreAdded) {
  const Compared compared;
  const TemporaryFolder whole_folder, folder;
  const Comparison whole = compared.made(compared.options(whole_folder.path(), 3, "mha,dcmha,coca"));
  compared.made(compared.options(folder.path(), 1, "mha,dcmha"));
  expect_same(whole, compared.made(compared.options(folder.path(), 3, "mha,dcmha,coca"), read_results(folder.path())));
}

TEST(Results, AnotherBaselineIsRefused) {
  const Compared compared;
  const TemporaryFolder folder;
  CompareOptions options = compared.options(folder.path(), 1, "dcmha,talking_heads");
  options.match = Match::parameters;
  compared.made(options);
  options.arms = parse_arms("dcmha,talking_heads,mha", json::object());
  const std::string message = message_of<UsageError>([&] { compared.made(options, read_results(folder.path())); });
  EXPECT_NE(message.find("for another mechanism is the baseline"), std::string::npos) << message;
}

TEST(Results, AnEvaluationThatIsMadeAgainIsNotInTheMetrics) {
  const TemporaryFolder folder;
  std::string lines;
  for (const char* line :
       {R"({"step":1,"loss":1.0,"learning_rate":1.0,"gradient_norm":1.0,"seconds":1.0,"mechanism":"mha","seed":1})",
        R"({"step":1,"validation_loss":1.0,"standard_error":0.0,"windows":1,"tokens":1,"mechanism":"mha","seed":1})"})
    lines += text(line, "\n");
  for (const bool evaluated : {true, false}) {
    write_file_atomic(folder.path() / "metrics.jsonl", lines);
    Results results;
    const RunName mha{.label = "mha", .size = "", .setting = "", .seed = 1};
    const auto begun = cut_metrics(folder.path(), results, {{mha, {1, evaluated}}});
    EXPECT_EQ(begun.at(mha).steps.size(), 1u);
    EXPECT_EQ(begun.at(mha).evals.size(), evaluated ? 1u : 0u);
  }
}

TEST(Results, AStepWhoseNormWasNotFiniteIsRead) {
  const TemporaryFolder folder;
  write_file_atomic(
      folder.path() / "metrics.jsonl",
      R"({"step":1,"loss":1.0,"learning_rate":1.0,"gradient_norm":null,"skipped":true,"seconds":1.0,"mechanism":"mha","seed":1})"
      "\n");
  Results results;
  const RunName mha{.label = "mha", .size = "", .setting = "", .seed = 1};
  const auto begun = cut_metrics(folder.path(), results, {{mha, {1, true}}});
  ASSERT_EQ(begun.at(mha).steps.size(), 1u);
  EXPECT_TRUE(begun.at(mha).steps[0].skipped);
  EXPECT_TRUE(std::isnan(begun.at(mha).steps[0].gradient_norm));
}

TEST(Results, DamageIsNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<UsageError>([&] { read_results(folder.path()); }).find("holds no comparison that can go on"),
            std::string::npos);
  const auto says = [&](const std::string& bytes, const std::string& what) {
    write_file_atomic(folder.path() / "results.json", bytes);
    const std::string message = message_of<Error>([&] { read_results(folder.path()); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  says("{", "results.json");
  says(R"({"version": 7})", "is of another version of Motet, want version 2");
  says(R"({"version": 2, "comparison": {}, "measured": [], "runs": [{"seed": 1}]})", "is damaged: ");
}

}  // namespace
}  // namespace motet
