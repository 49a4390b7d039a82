// Episodes as a row of tokens that training reads like any text.
#pragma once

#include "motet/data/tokens.h"
#include "motet/tasks/task.h"

namespace motet {

// Rows of length() + 1 tokens, an episode and its answer each; the answer alone is learned. Nothing is kept: a row is
// made when it is read.
class EpisodeTokens : public TokenSequence {
 public:
  EpisodeTokens(std::shared_ptr<const Task> task, uint64_t seed, uint64_t episodes, bool test)
      : task_(std::move(task)), seed_(seed), episodes_(episodes), test_(test) {}

  uint64_t size() const override { return episodes_ * row_length() + 1; }  // the last target is nobody's
  void read(uint64_t begin, std::span<int64_t> out) const override;
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override;
  uint64_t row_length() const override { return static_cast<uint64_t>(task_->length()) + 1; }
  void leave_out(uint64_t begin, std::span<int64_t> targets) const override;

 private:
  std::shared_ptr<const Task> task_;
  uint64_t seed_, episodes_;
  bool test_;
};

}  // namespace motet
