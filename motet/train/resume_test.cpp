#include "motet/train/resume.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

// Five steps, evaluated after the second and the fourth; the last line is cut off.
std::string five_steps() {
  std::string lines;
  for (int step = 1; step <= 5; ++step) {
    lines += json{{"step", step}, {"loss", 1.0}}.dump() + "\n";
    if (step % 2 == 0) lines += json{{"step", step}, {"validation_loss", 1.0}}.dump() + "\n";
  }
  return lines + R"({"step":6,"lo)";
}

size_t lines_kept(int64_t step, bool evaluation_due) {
  const TemporaryFolder run;
  write_file_atomic(run.path() / "metrics.jsonl", five_steps());
  tidy_run({.run = run.path(),
            .checkpoint = {},
            .state = {{"step", step}, {"evaluation_due", evaluation_due}},
            .config = {}});
  const std::string kept = read_file(run.path() / "metrics.jsonl");
  EXPECT_TRUE(five_steps().starts_with(kept));
  return static_cast<size_t>(std::ranges::count(kept, '\n'));
}

TEST(Resume, MetricsEndWhereTheCheckpointStands) {
  EXPECT_EQ(lines_kept(1, false), 1u);
  EXPECT_EQ(lines_kept(2, false), 3u);
  EXPECT_EQ(lines_kept(3, false), 4u);
  EXPECT_EQ(lines_kept(5, false), 7u);
  EXPECT_EQ(lines_kept(9, false), 7u) << "half a line is none";
}

// A checkpoint that a signal made in an evaluation: the run that went on evaluated, and was killed before the next one.
TEST(Resume, AnEvaluationThatIsMadeAgainIsNotInTheMetrics) {
  EXPECT_EQ(lines_kept(4, false), 6u);
  EXPECT_EQ(lines_kept(4, true), 5u);
}

TEST(Resume, ABudgetMayGrowInItsOwnUnit) {
  const auto point = [](const Overrides& set) {
    return ResumePoint{.run = {},
                       .checkpoint = {},
                       .state = {{"run", small_run(set).resolved()}, {"freeze", json::array()}},
                       .config = {}};
  };
  const auto says = [&](const Overrides& was, const Overrides& is) {
    return message_of<UsageError>([&] { check_same_run(point(was), small_run(is)); });
  };
  check_same_run(point({{"train.tokens", "1000"}}), small_run({{"train.tokens", "2000"}}));
  check_same_run(point({{"train.minutes", "1"}}), small_run({{"train.minutes", "1"}}));
  EXPECT_EQ(says({{"train.minutes", "2"}}, {{"train.minutes", "1"}}),
            "train: --resume: train.minutes was 2 and is 1, want at least that");
  EXPECT_EQ(says({{"train.tokens", "1000"}}, {{"train.steps", "1000"}}),
            "train: --resume: the budget was train.tokens = 1000, want it in the same unit");
}

}  // namespace
}  // namespace motet
