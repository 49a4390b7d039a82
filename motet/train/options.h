#pragma once
#include "motet/core/fields.h"

namespace motet {

enum class Documents { packed, apart };
/// float32 and float64 are of parameters and products; bfloat16 is autocast of the forward pass over float32.
enum class TrainDtype { float32, float64, bfloat16 };
inline const Words<TrainDtype>& train_dtypes() {
  static const Words<TrainDtype> all{
      {"float32", TrainDtype::float32}, {"float64", TrainDtype::float64}, {"bfloat16", TrainDtype::bfloat16}};
  return all;
}

/// [data] beside its texts.
struct DataOptions {
  std::string tokenizer = "auto";
  double validation = 0.1;
  Documents documents = Documents::packed;
};
const Fields<DataOptions>& data_options();

/// [train].
struct TrainOptions {
  int64_t steps = 0, tokens = 0;  // one of these and minutes is the budget
  double minutes = 0;
  int64_t context = 128, batch_size = 16;
  double learning_rate = 3e-3, final_learning_rate = 0.1, warmup = 0.05, weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, clip = 1;
  TrainDtype dtype = TrainDtype::float32;
  std::string device = "auto";
  int64_t eval_every = 0, eval_windows = 64, final_eval_windows = 0, checkpoint_every = 0;
  int64_t seed = 1, data_seed = 0;

  int64_t tokens_per_step() const { return batch_size * context; }
  /// Steps of a budget in steps or tokens (whole steps, rounded up); 0 when it is minutes.
  int64_t budget_steps() const { return steps > 0 ? steps : (tokens + tokens_per_step() - 1) / tokens_per_step(); }
};
const Fields<TrainOptions>& train_options();

}  // namespace motet
