// Episodes as a row of tokens that training reads like any text.
#pragma once

#include "motet/data/tokens.h"
#include "motet/tasks/task.h"

namespace motet {

// Tests are those of this seed, so many at the size that is trained.
inline constexpr uint64_t kTestSeed = 1'000'000, kTestEpisodes = 10'000;

// How many tests of a size take about as long as those of the trained one, 1000 at least.
uint64_t test_episodes(const Task& trained, const Task& own);

// Rows of length() + answer_length() tokens, an episode and its answer each; the answer alone is learned. Nothing is
// kept: a row is made when it is read.
class EpisodeTokens : public TokenSequence {
 public:
  // In place of a number of episodes: there are always more.
  static constexpr uint64_t kEndless = uint64_t{1} << 40;

  EpisodeTokens(std::shared_ptr<const Task> task, uint64_t seed, uint64_t episodes, bool test)
      : task_(std::move(task)), seed_(seed), episodes_(episodes), test_(test) {}

  uint64_t size() const override { return episodes_ * row_length() + 1; }  // the last target is nobody's
  void read(uint64_t begin, std::span<int64_t> out) const override;
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override;
  uint64_t row_length() const override { return static_cast<uint64_t>(task_->row_length()); }
  void leave_out(uint64_t begin, std::span<int64_t> targets) const override;
  bool endless() const override { return episodes_ == kEndless; }

 private:
  std::shared_ptr<const Task> task_;
  uint64_t seed_, episodes_;
  bool test_;
};

}  // namespace motet
