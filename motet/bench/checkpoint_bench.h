// `motet bench checkpoint`: how long a checkpoint holds up the steps of a training.
#pragma once

#include "motet/bench/train_bench.h"

namespace motet {

struct CheckpointTimes {
  int64_t parameters = 0, bytes = 0;  // bytes: of all tensors of a checkpoint, the optimiser's with them
  Time copy;                          // of as many bytes to memory that is there, by memcpy
  Time held_up;                       // until the next step may begin: as train.async_checkpoint writes
  Time room;                          // of the memory of such copies, made beside a run's first steps
  Time written;                       // the same without train.async_checkpoint
};

/// The checkpoint of a training of the shape with this [model.attention] section, written to a folder of its own for
/// temporary files, by turns. Throws Error when the disk is full.
CheckpointTimes measure_checkpoint(const TrainShape&, const nlohmann::json& attention, Turns, at::Device = at::kCPU);

}  // namespace motet
