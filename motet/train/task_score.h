#pragma once
#include <map>

#include "motet/models/model.h"
#include "motet/tasks/task.h"

namespace motet {

/// How a model answers episodes of a task. An answer is right when each of its tokens is the likeliest behind the ones
/// before it: what greedy decoding says is the answer.
struct TaskScore {
  struct Counts {
    int64_t episodes = 0, right = 0;
    int64_t misattributed = 0;  // said another answer that the text holds
    double chances = 0;         // sum of chance (tasks/task.h)

    double accuracy() const { return part(right); }
    double error() const;  // its standard error, sqrt(p (1 - p) / (n - 1)); 0 of one episode
    double chance() const { return chances / static_cast<double>(episodes); }
    double part(int64_t count) const { return static_cast<double>(count) / static_cast<double>(episodes); }
    /// Said what is in the text no answer at all.
    int64_t fabricated() const { return episodes - right - misattributed; }
    void add(const Counts&);
  };
  Counts all;
  std::map<std::string, Counts> slices;
  bool has_others = false;  // texts hold answers that are wrong: what is misattributed means something

  /// That of other episodes.
  void add(const TaskScore&);
};

/// The test episodes of these numbers, `at_once` together (0: those of 65,536 tokens), without gradients. The one way
/// in which training, experiments and `motet eval` score answers. Throws Interrupted.
TaskScore score_task(ModelImpl&, const Task&, std::span<const int64_t> numbers, int64_t at_once = 0);

/// 0 ... count - 1.
std::vector<int64_t> first_episodes(uint64_t count);

/// [rows, columns] int64 of rows of one length.
Tensor rows_of(const std::vector<std::vector<int64_t>>& rows);

}  // namespace motet
