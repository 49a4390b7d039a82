#pragma once
#include <functional>

#include "motet/core/error.h"
#include "motet/train/optimizer.h"
#include "motet/train/score.h"
#include "motet/train/text_data.h"

namespace motet {

struct StepRecord {
  int64_t step = 0;  // from 1
  double loss = 0, learning_rate = 0, gradient_norm = 0, seconds = 0;
};
/// The score of validation windows after a step.
struct EvalRecord : WindowScore {
  int64_t step = 0;
};

/// A loss or gradient that is no finite number: the fault of the model or its settings, not of the machine.
class Diverged : public Error {
 public:
  using Error::Error;
};

/// Steps of a budget in steps or tokens (whole steps, rounded up); 0 when it is minutes.
int64_t budget_steps(const nlohmann::json& train);

/// Where a run computes: train.device. Throws UsageError as parse_device (ops/device.h).
at::Device run_device(const nlohmann::json& train);

/// Trains one model step by step. The budget is steps, tokens or minutes of train_options.
class Trainer {
 public:
  /// The model moves to train.device and takes the dtype of train.dtype: float64 parameters, or float32 ones, under
  /// autocast for bfloat16.
  Trainer(Model, const TextData&, const nlohmann::json& train);

  bool done() const;
  /// One optimiser step. Throws Diverged naming the step and the layer when the loss is not finite.
  StepRecord step();
  /// Scores windows of the validation text, evenly spread: train.eval_windows, at the end of the budget
  /// train.final_eval_windows. Throws Diverged likewise.
  EvalRecord evaluate();
  bool evaluation_due();  // after the step just made

  int64_t steps_done() const { return step_; }
  int64_t planned_steps() const;  // estimated when the budget is minutes
  int64_t tokens_per_step() const;
  double seconds() const { return seconds_; }  // of steps alone
  ModelImpl& model() { return *model_; }

 private:
  double progress() const;  // of the budget, 0 to 1
  double learning_rate() const;
  std::vector<int64_t> eval_windows() const;

  Model model_;
  nlohmann::json train_;
  Batches batches_;
  ScoredTokens validation_;
  AdamW optimizer_;
  int64_t step_ = 0;
  double seconds_ = 0;
  double next_evaluation_ = 0.1;  // progress at which the next one is due when eval_every is 0
};

/// A line of metrics.jsonl.
nlohmann::json metrics_record(const StepRecord&);
nlohmann::json metrics_record(const EvalRecord&);

struct TrainResult {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;  // the last one is after the last step
  double seconds = 0;
};
struct TrainEvents {
  std::function<void(const StepRecord&)> step = [](const StepRecord&) {};
  std::function<void(const EvalRecord&)> evaluated = [](const EvalRecord&) {};
};

/// Runs the whole budget. Throws Interrupted on Ctrl-C.
TrainResult train_model(Trainer&, const TrainEvents&);

}  // namespace motet
