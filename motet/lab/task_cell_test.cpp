// The scores of a cell against the plain definition, and against what they are called.
#include "motet/lab/task_cell.h"

#include <gtest/gtest.h>

#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/tasks/episodes.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

// The share of the first tests of seed 1,000,000 whose answer is the likeliest token, in plain batches.
double plain(ModelImpl& model, const Task& task, int64_t count, const std::string& slice = "") {
  at::NoGradGuard no_grad;
  int64_t right = 0, all = 0;
  for (int64_t first = 0; first < count; first += 500) {
    std::vector<int64_t> ids;
    std::vector<Episode> episodes;
    for (int64_t i = first; i < std::min<int64_t>(first + 500, count); ++i) {
      episodes.push_back(task.episode(1'000'000, static_cast<uint64_t>(i), true));
      ids.insert(ids.end(), episodes.back().ids.begin(), episodes.back().ids.end());
    }
    const Tensor logits = model.forward(at::tensor(ids, at::kLong).view({std::ssize(episodes), task.length()}));
    const Tensor said = logits.select(1, -1).argmax(-1);
    for (size_t i = 0; i < episodes.size(); ++i) {
      const auto& slices = episodes[i].slices;
      if (!slice.empty() && std::ranges::find(slices, slice) == slices.end()) continue;
      right += said[static_cast<int64_t>(i)].item<int64_t>() == episodes[i].answer[0], ++all;
    }
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

TEST(TaskCell, AccuraciesAreThoseOfTheFirstTests) {
  const TaskCell cell = read_task({{"name", "where-select"},
                                   {"fields", 2},
                                   {"values", 2},
                                   {"items", 2},
                                   {"held_out", 0},
                                   {"test", {{{"name", "n=3"}, {"items", 3}}, {{"name", "n=25"}, {"items", 25}}}}});
  ModelConfig config = tiny({{"initializer_range", 1.0}}, {{"num_heads", 2}}, cell.task().vocabulary());
  fit_to_task(config, cell);
  EXPECT_EQ(config.context, 28);
  Model model = fresh(config);
  fix_embedding(*model, cell.task(), 1);
  const std::map<std::string, double> found = accuracies(*model, cell);
  std::map<std::string, double> wanted{{"accuracy", plain(*model, cell.task(), 10'000)},
                                       {"accuracy{n=3}", plain(*model, *cell.tests[1].task, 8333)},
                                       {"accuracy{n=25}", plain(*model, *cell.tests[2].task, 1785)}};
  ASSERT_GT(wanted["accuracy"], 0.02);
  ASSERT_NE(wanted["accuracy"], wanted["accuracy{n=3}"]);
  wanted["accuracy{seen}"] = wanted["accuracy"];
  wanted["accuracy{n=3, seen}"] = wanted["accuracy{n=3}"];
  wanted["accuracy{n=25, seen}"] = wanted["accuracy{n=25}"];
  EXPECT_EQ(found, wanted);
}

TEST(TaskCell, SlicesAreCountedApart) {
  const TaskCell cell =
      read_task({{"name", "where-select"}, {"fields", 3}, {"values", 2}, {"items", 2}, {"held_out", 1}});
  ModelConfig config = tiny({{"initializer_range", 1.0}}, {{"num_heads", 2}}, cell.task().vocabulary());
  fit_to_task(config, cell);
  Model model = fresh(config);
  fix_embedding(*model, cell.task(), 1);
  const auto found = accuracies(*model, cell);
  EXPECT_EQ(found.size(), 3u);
  for (const char* slice : {"held out", "seen"})
    EXPECT_EQ(found.at(text("accuracy{", slice, "}")), plain(*model, cell.task(), 10'000, slice)) << slice;
}

TEST(TaskCell, WrongAnswersOfATextAreToldApart) {
  const TaskCell cell = read_task({{"name", "facts"},
                                   {"tokens", 12},
                                   {"facts", 3},
                                   {"fewest", 2},
                                   {"entities", 2},
                                   {"relations", 2},
                                   {"values", 3},
                                   {"noise", 1}});
  ModelConfig config = tiny({{"initializer_range", 1.0}}, {{"num_heads", 2}}, cell.task().vocabulary());
  fit_to_task(config, cell);
  Model model = fresh(config);
  const auto found = accuracies(*model, cell);
  EXPECT_NEAR(found.at("accuracy") + found.at("misattributed") + found.at("fabricated"), 1, 1e-12);
  EXPECT_GT(found.at("misattributed"), 0);
  EXPECT_TRUE(found.contains("accuracy{facts 2-3}"));
}

// What a test leaves out is what was trained, and so is the T of its slices.
TEST(TaskCell, ATestHasTheOptionsOfTheTraining) {
  const TaskCell cell =
      read_task({{"name", "passkey"}, {"tokens", 64}, {"test", {{{"name", "n=200"}, {"tokens", 200}}}}});
  EXPECT_EQ(cell.given["trained"], 64);
  EXPECT_EQ(cell.longest(), 202);
  int far = 0;
  for (uint64_t n = 0; n < 100; ++n) far += cell.tests[1].task->episode(1, n, true).slices[0] == "distance >= T";
  EXPECT_GT(far, 50);
  EXPECT_EQ(cell.tests[0].task->episode(1, 0, true).slices[0], "distance < T");
}

// Of the same parameters, at other positions: as in a model that was made with them.
TEST(TaskCell, AScaledTestIsThatOfAModelWithThatScaling) {
  const json given{{"name", "passkey"},
                   {"tokens", 64},
                   {"digits", 1},
                   {"test",
                    {{{"name", "n=256"}, {"tokens", 256}},
                     {{"name", "n=256, dynamic 4"}, {"tokens", 256}, {"scaling", "dynamic 4"}}}}};
  const TaskCell cell = read_task(given);
  ModelConfig config = tiny({{"initializer_range", 1.0}}, {{"num_heads", 2}}, cell.task().vocabulary());
  fit_to_task(config, cell);
  ModelConfig scaled = config;
  scaled.attention["rope_scaling"] = "dynamic", scaled.attention["rope_factor"] = 4;
  scaled.attention["rope_trained_length"] = 65;  // an episode and its answer, as in a training
  Model model = fresh(config), other = fresh(scaled);
  const auto found = accuracies(*model, cell);
  const auto count = static_cast<int64_t>(test_episodes(cell.task(), *cell.tests[1].task));
  EXPECT_EQ(found.at("accuracy{n=256}"), plain(*model, *cell.tests[1].task, count));
  EXPECT_EQ(found.at("accuracy{n=256, dynamic 4}"), plain(*other, *cell.tests[2].task, count));
  EXPECT_NE(found.at("accuracy{n=256, dynamic 4}"), found.at("accuracy{n=256}"));
  EXPECT_TRUE(found.contains("accuracy{n=256, dynamic 4, distance >= T}"));

  config.attention["rope_fraction"] = 0;
  const auto without = accuracies(*fresh(config), cell);
  EXPECT_TRUE(without.contains("accuracy{n=256}") && !without.contains("accuracy{n=256, dynamic 4}"));
}

TEST(TaskCell, AScalingThatIsNoneIsRefused) {
  const auto said = [](const json& scaling) {
    const json given{{"name", "passkey"}, {"tokens", 64}, {"test", {{{"name", "n=64, far"}, {"scaling", scaling}}}}};
    return message_of<UsageError>([&] {
      const TaskCell cell = read_task(given);
      check_tests(tiny({}, {{"num_heads", 2}}, cell.task().vocabulary()), cell);
    });
  };
  EXPECT_EQ(said("dynamic"), "data.task.test: scaling: 'dynamic', want a kind and a factor, as in dynamic 4");
  EXPECT_EQ(said(4), "data.task.test: scaling: want a string, as in \"dynamic 4\"");
  EXPECT_NE(said("dynamik 4").find("nearest is 'dynamic'"), std::string::npos) << said("dynamik 4");
  EXPECT_NE(said("dynamic x").find("rope_factor"), std::string::npos) << said("dynamic x");
}

}  // namespace
}  // namespace motet
