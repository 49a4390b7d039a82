// How contestants are timed: in one process, taking turns, medians.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "motet/ops/torch.h"

namespace motet {

/// Seconds on the clock, and seconds of the processor over all threads of this process: what a busy machine disturbs
/// less.
struct Time {
  double wall = 0, cpu = 0;
};

/// The middle value, the mean of the middle two for an even number. Throws Error for no values.
double median(std::vector<double> values);
Time median(const std::vector<Time>& times);

/// The clock starts when the device has nothing left to do and stops when it has done the call; that of a GPU is its
/// own.
Time timed(const std::function<void()>& call, at::Device = at::kCPU);

struct Turns {
  int64_t warmups = 2;  // not counted: they allocate
  int64_t repeats = 9;
};

/// The median time of each contestant; all of them once, then all again, so that each meets the same weather. An empty
/// contestant is passed over and has no time (0). Throws Interrupted on Ctrl-C.
std::vector<Time> interleaved(const std::vector<std::function<void()>>& contestants, Turns turns,
                              at::Device = at::kCPU);

}  // namespace motet
