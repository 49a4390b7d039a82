// `motet bench train`: training steps of a LLaMA-like model against the same model in eager PyTorch.
#pragma once

#include <string>

#include "motet/bench/timing.h"
#include "motet/core/options.h"

namespace motet {

/// hidden, layers, heads, kv_heads, intermediate, vocab, T and B; the defaults make 10.4 million parameters.
const OptionTable& train_shape_options();

struct TrainBench {
  nlohmann::json shape;  // every key of train_shape_options
  std::string python;    // empty: .venv/bin/python of the source tree
  int64_t threads = 2;
  Turns turns;
};

struct TrainTimes {
  int64_t parameters = 0, tokens_per_step = 0;
  std::string rival_torch;  // version
  Time ours, rival;         // medians of one step
};

/// Our Trainer and bench/rival_llama.py, a resident process, take turns step by step with equal threads. Throws
/// UsageError when the sizes do not fit together, Error when the rival does not run or counts other parameters.
TrainTimes measure_training(const TrainBench&);

}  // namespace motet
