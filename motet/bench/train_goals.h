// `motet bench train --goals`: what a training step has to reach, of 124 million parameters on a GPU, of 10 on a CPU.
#pragma once

#include "motet/bench/goals.h"
#include "motet/bench/train_bench.h"

namespace motet {

/// The tokens a second of one contender or rival over another's, at least `limit`; 0: a figure beside the others.
struct RateGoal {
  std::string of, over;
  double limit;
};

struct TrainGoals {
  TrainShape shape;
  TrainDtype dtype;
  std::vector<TrainRival> (*rivals)(int64_t rows);  // of a step of ours
  std::vector<RateGoal> rates;
};
/// 12 layers, width 768, 12 heads, 50304 tokens tied to the output, 16 rows of 1024, as bfloat16 autocast, beside
/// compiled models.
TrainGoals gpu_train_goals();
/// The sizes of `bench train` in float32, beside eager PyTorch, with the limits of this kind of CPU (machine.h).
TrainGoals cpu_train_goals(const std::string& kind);

/// Plain attention, DCMHA and differential V1 beside the rivals; of `base` the shape, Python, threads, device and turns
/// count. A time is that of as many tokens as our step has.
std::vector<Goal> measure_train_goals(const TrainBench& base, const TrainGoals&);

}  // namespace motet
