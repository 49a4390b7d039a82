// `motet bench train`: training steps of LLaMA-like models, one a mechanism, against plain attention in eager PyTorch.
#pragma once

#include <string>
#include <vector>

#include "motet/bench/timing.h"
#include "motet/core/fields.h"
#include "motet/train/run_config.h"
#include "motet/train/text_data.h"

namespace motet {

/// Sizes of a model and of a step; the defaults make 10.4 million parameters.
struct TrainShape {
  int64_t hidden = 384, layers = 5, heads = 6, kv_heads = 0, intermediate = 0, vocab = 2048;
  int64_t T = 512, B = 4;
  bool tied = false;
};
const Fields<TrainShape>& train_shape_options();

/// A model of the sizes with one mechanism: its name and its [model.attention] section.
struct Contender {
  std::string name;
  nlohmann::json attention;
  Recompute recompute = Recompute::none;
};

/// bench/rival_llama.py, beside the sizes told `request`; it must count the parameters of our model `same_as`.
struct TrainRival {
  std::string name = "eager PyTorch";
  nlohmann::json request = nlohmann::json::object();
  std::string same_as = "mha";
};

struct TrainBench {
  TrainShape shape;
  std::vector<Contender> contenders;
  std::vector<TrainRival> rivals = {{}};
  bool without_missing = false;            // a rival that does not run is left out and says why; else it is an error
  TrainDtype dtype = TrainDtype::float32;  // of all, the rivals too
  std::string python;                      // empty: .venv/bin/python of the source tree
  int64_t threads = 2;
  at::Device device = at::kCPU;  // of all, the rivals too
  Turns turns;
};

struct TrainTime {
  std::string name;
  int64_t parameters = 0;
  int64_t tokens = 0;  // of a step
  Time step = {};      // median
  double data = -1;    // part of it in which the batch was made, median; -1: of a rival, not known
  std::string why_not = {};

  double seconds_per_token() const { return step.wall / static_cast<double>(tokens); }
};

struct TrainTimes {
  std::string rival_torch;  // version
  std::vector<TrainTime> ours, rivals;
};

/// The training of the sizes, of plain attention.
RunConfig bench_run(const TrainBench&);

/// Tokens of no text, enough for batches of rows of `context`.
TextData random_tokens(int64_t vocab, int64_t context);

/// A Trainer of each contender and the rivals, resident processes, take turns step by step with equal threads. Throws
/// UsageError when the sizes do not fit together, Error when a rival does not run or counts other parameters.
TrainTimes measure_training(const TrainBench&);

}  // namespace motet
