// `motet bench attention --goals`: figures that the fused kernels have to reach, each a ratio of two times of one
// interleaved run, after a check against float64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motet/bench/timing.h"

namespace motet {

/// One goal and what was measured: `of` over `over`, at most or at least `limit`; 0: a figure without a goal. By
/// processor time where one thread runs, by the clock where the number of threads is what is measured, or a GPU works.
struct Goal {
  std::string what, of, over;
  double limit;
  bool at_least = false;
  bool wall = false;
  Time of_time, over_time;
  double stretch = 0;   // what is hoped for beyond the limit; 0: nothing
  std::string why_not;  // not empty: it was not measured

  double measured() const { return wall ? of_time.wall / over_time.wall : of_time.cpu / over_time.cpu; }
  /// Within 5 %: what one run differs from the next.
  bool reached() const { return at_least ? measured() >= limit / 1.05 : measured() <= limit * 1.05; }
  /// A goal that is not reached, be it that it was not measured.
  bool short_of() const { return limit != 0 && (!why_not.empty() || !reached()); }
};

struct GoalRun {
  int64_t length = 0;  // only groups of this T; 0: all
  std::string kind;    // of CPU, whose limits count (machine.h)
  std::string python;  // that runs the rivals
  Turns turns;
  at::Device device = at::kCPU;                                                // the CPU's own goals, or those of a GPU
  std::function<void(const std::string&)> report = [](const std::string&) {};  // the group under way
  std::function<void(const std::vector<Goal>&)> measured = [](const std::vector<Goal>&) {};  // those of a group
};

/// All goals of the groups asked for, in order. Where a contestant cannot run, or its operator is wrong, its goals say
/// why. Throws UsageError for a length that no group has.
std::vector<Goal> measure_goals(const GoalRun&);

}  // namespace motet
