// `motet bench train --goals`: what a training step of 124 million parameters has to reach on a GPU.
#pragma once

#include "motet/bench/goals.h"
#include "motet/bench/train_bench.h"

namespace motet {

/// The model of the goals: 12 layers, width 768, 12 heads, 50304 tokens tied to the output; 16 rows of 1024.
TrainShape train_goal_shape();

/// Plain attention, DCMHA and differential V1 beside compiled models in PyTorch, as bfloat16 autocast; of `base` the
/// shape, Python, threads, device and turns count. Goals of tokens a second; a time is that of as many tokens as our
/// step has.
std::vector<Goal> measure_train_goals(const TrainBench& base);

}  // namespace motet
