// `motet bench train`: training steps of LLaMA-like models, one a mechanism, against plain attention in eager PyTorch.
#pragma once

#include <string>
#include <vector>

#include "motet/bench/timing.h"
#include "motet/core/fields.h"

namespace motet {

/// Sizes of a model and of a step; the defaults make 10.4 million parameters.
struct TrainShape {
  int64_t hidden = 384, layers = 5, heads = 6, kv_heads = 0, intermediate = 0, vocab = 2048;
  int64_t T = 512, B = 4;
};
const Fields<TrainShape>& train_shape_options();

/// A model of the sizes with one mechanism: its name and its [model.attention] section.
struct Contender {
  std::string name;
  nlohmann::json attention;
};

struct TrainBench {
  TrainShape shape;
  std::vector<Contender> contenders;
  std::string python;  // empty: .venv/bin/python of the source tree
  int64_t threads = 2;
  at::Device device = at::kCPU;  // of all, the rival too
  Turns turns;
};

struct TrainTime {
  std::string name;
  int64_t parameters = 0;
  Time step;  // median
};

struct TrainTimes {
  int64_t tokens_per_step = 0;
  std::string rival_torch;  // version
  TrainTime rival;          // plain attention
  std::vector<TrainTime> ours;
};

/// A Trainer of each contender and bench/rival_llama.py, a resident process, take turns step by step with equal
/// threads. Throws UsageError when the sizes do not fit together, Error when the rival does not run or counts other
/// parameters than "mha".
TrainTimes measure_training(const TrainBench&);

}  // namespace motet
