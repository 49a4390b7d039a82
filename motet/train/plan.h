#pragma once
#include <filesystem>
#include <optional>

#include "motet/models/cost.h"
#include "motet/train/options.h"

namespace motet {

/// What training one model takes, known from shapes alone.
struct TrainingPlan {
  ModelCost cost;
  int64_t checkpoint_bytes = 0;      // of the parameters, as they are saved
  int64_t run_checkpoint_bytes = 0;  // with the optimiser's state
  int64_t training_bytes = 0;    // parameters, gradients and the optimiser's state; of an asynchronous checkpoint too
  int64_t activation_bytes = 0;  // of one step, at least
};
TrainingPlan training_plan(const ModelConfig&, const TrainOptions&);

/// Throws Error with the bytes and the keys to change when more is needed than the device can give, as free_memory
/// (ops/device.h) has it.
void check_memory(const TrainingPlan&, std::optional<int64_t> available_bytes);
/// Likewise for `bytes` of checkpoints below a folder that exists.
void check_disk(const std::filesystem::path& folder, int64_t bytes);

}  // namespace motet
