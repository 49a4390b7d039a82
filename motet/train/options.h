#pragma once
#include "motet/core/fields.h"
#include "motet/core/precision.h"

namespace motet {

enum class Documents { packed, apart };
/// float32 and float64 are of parameters and products; bfloat16 and float16 are autocast of the forward pass over
/// float32, float16 with a loss that is scaled (loss_scale.h).
enum class TrainDtype { float32, float64, bfloat16, float16 };
inline const Words<TrainDtype>& train_dtypes() {
  static const Words<TrainDtype> all{{"float32", TrainDtype::float32},
                                     {"float64", TrainDtype::float64},
                                     {"bfloat16", TrainDtype::bfloat16},
                                     {"float16", TrainDtype::float16}};
  return all;
}

enum class OptimizerKind { adamw, adam, sgd, muon };
inline const Words<OptimizerKind>& optimizer_kinds() {
  static const Words<OptimizerKind> all{{"adamw", OptimizerKind::adamw},
                                        {"adam", OptimizerKind::adam},
                                        {"sgd", OptimizerKind::sgd},
                                        {"muon", OptimizerKind::muon}};
  return all;
}
enum class Schedule { cosine, linear, wsd, inverse_sqrt, constant };
/// How the rate of `wsd` falls at its end: by 1 - x, 1 - sqrt(x) or (1 + cos(pi x)) / 2 of the part x of the fall.
enum class DecayShape { linear, sqrt, cosine };
/// What is learned: the next token, or hidden ones (motet/data/masking.h).
enum class Objective { next, masked };
/// What the backward pass computes again instead of keeping it.
enum class Recompute { none, block };

/// [data] beside its texts.
struct DataOptions {
  std::string tokenizer = "auto";
  double validation = 0.1;
  Documents documents = Documents::packed;
};
const Fields<DataOptions>& data_options();

/// Evaluations and checkpoints of a run, of which the options say no other number of steps.
inline constexpr int64_t kTimesInARun = 10;

/// [train].
struct TrainOptions {
  int64_t steps = 0, tokens = 0;  // one of these and minutes is the budget
  double minutes = 0;
  Objective objective = Objective::next;
  bool mask_whole_words = false;
  int64_t context = 128, batch_size = 16;
  int64_t position_offset = 0;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double learning_rate = 3e-3, muon_learning_rate = 0.02;
  Schedule schedule = Schedule::cosine;
  double final_learning_rate = 0.1, warmup = 0.05, decay = 0.2;
  DecayShape decay_shape = DecayShape::linear;
  double weight_decay = 0.1;
  std::string no_decay;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, momentum = 0.95, clip = 1;
  double label_smoothing = 0, z_loss = 0, dropout = 0, skip_outliers = 0;
  std::string average;
  TrainDtype dtype = TrainDtype::float32;
  Precision matmul_precision = Precision::highest;
  std::string device = "auto";
  int64_t micro_batch_size = 0, loss_rows = 0;
  Recompute recompute = Recompute::none;
  int64_t eval_every = 0, eval_windows = 64, final_eval_windows = 0, diagnose_every = 100;
  int64_t checkpoint_every = 0, keep_last = 2, keep_best = 1;
  bool async_checkpoint = false;
  int64_t seed = 1, data_seed = 0;
  bool shard_optimizer = false;
  int64_t timeout = 60, start_timeout = 300;

  int64_t tokens_per_step() const { return batch_size * context; }
  /// Rows of a step that a process computes together.
  int64_t rows_at_once(int64_t processes) const {
    const int64_t share = batch_size / processes;
    return micro_batch_size > 0 && micro_batch_size < share ? micro_batch_size : share;
  }
  /// Steps of a budget in steps or tokens (whole steps, rounded up); 0 when it is minutes.
  int64_t budget_steps() const { return steps > 0 ? steps : (tokens + tokens_per_step() - 1) / tokens_per_step(); }
};
const Fields<TrainOptions>& train_options();

}  // namespace motet
