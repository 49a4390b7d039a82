#pragma once
#include "motet/processes/processes.h"
#include "motet/train/score.h"
#include "motet/train/task_score.h"

// Scores that processes make together: each of its part, and then all of them have the whole.
namespace motet {

/// As score_windows (score.h). Throws Interrupted in all processes when a signal came to one of them.
WindowScore score_windows(const Processes&, ModelImpl&, const ScoredTokens&, std::span<const int64_t> which,
                          const AtOnce&);
/// As score_task (task_score.h), likewise.
TaskScore score_task(const Processes&, ModelImpl&, const Task&, std::span<const int64_t> numbers);

}  // namespace motet
