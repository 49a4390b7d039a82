// `motet bench memory --shape train=1`: what a step of a training holds beyond the model and its gradients, with each
// of the options that save memory.
#pragma once

#include <string>
#include <vector>

#include "motet/bench/train_bench.h"

namespace motet {

/// One way to train.
struct StepWay {
  std::string name;
  Recompute recompute = Recompute::none;
  int64_t loss_rows = 0;
};

struct StepMemory {
  int64_t tensors = 0;  // bytes of parameters and gradients
  int64_t beyond = 0;   // peak bytes of forward and backward beyond those; on the CPU those that are resident
  Time time;            // of both, once
};

/// A model of the shape with this [model.attention] section: forward and backward of one batch, after a short one that
/// made what stays. Throws as measure_memory does.
StepMemory measure_step_memory(const TrainShape&, const nlohmann::json& attention, const StepWay&,
                               at::Device = at::kCPU);

}  // namespace motet
