// `motet bench processes`: a training step of several processes, beside that of one.
#pragma once

#include "motet/bench/train_bench.h"
#include "motet/processes/processes.h"

namespace motet {

struct ProcessesTime {
  std::string name;
  int64_t processes = 0;
  Time step = {};               // median; CPU: of all processes
  int64_t exchanged_bytes = 0;  // that each sends, and receives, in a step, as computed
  int64_t state_bytes = 0;      // of the optimiser, of the first process
};

struct ProcessesTimes {
  int64_t parameters = 0, tokens = 0;  // of the model; of a step
  std::vector<ProcessesTime> ways;     // one process; all; all with train.shard_optimizer
};

/// All processes call it. The first one makes a step alone, then all make it together, each way, in turns. Contenders
/// and rivals of `bench` are not used. Throws Error when the losses of the first steps differ by more than rounding,
/// UsageError when the rows cannot be shared.
ProcessesTimes measure_processes(const TrainBench& bench, const std::shared_ptr<Processes>&);

}  // namespace motet
