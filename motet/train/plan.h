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
  int64_t exchanged_bytes = 0;   // that each of several processes sends, and receives, in a step
};
/// Of each process, where there are several; throws as check_batch.
TrainingPlan training_plan(const ModelConfig&, const TrainOptions&, int64_t processes = 1);

/// Throws UsageError for a batch that processes cannot share equally.
void check_batch(const TrainOptions&, int64_t processes);
/// Throws Error with the bytes and the keys to change when more is needed than the device can give, as free_memory
/// (ops/device.h) has it, to so many processes together.
void check_memory(const TrainingPlan&, std::optional<int64_t> available_bytes, int64_t processes = 1);
/// That keep_best finds nothing to keep, for no checkpoint before the end falls on an evaluation; "" where some do.
std::string remark_on_best(const TrainOptions&);
/// How many checkpoints of a run lie on the disk at most, the one that is written among them.
int64_t checkpoints_at_once(const TrainOptions&);
/// As check_memory, for `bytes` of checkpoints below a folder that exists, of which those in its folders `stored` are
/// there already.
void check_disk(const std::filesystem::path& folder, int64_t bytes, const std::vector<std::string>& stored);

}  // namespace motet
