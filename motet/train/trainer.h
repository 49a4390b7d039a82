#pragma once
#include <functional>

#include "motet/core/error.h"
#include "motet/probe/probe.h"
#include "motet/processes/processes.h"
#include "motet/train/average.h"
#include "motet/train/loss_scale.h"
#include "motet/train/objective.h"
#include "motet/train/optimizer.h"
#include "motet/train/outliers.h"
#include "motet/train/score.h"
#include "motet/train/task_score.h"
#include "motet/train/text_data.h"

namespace motet {

struct StepRecord {
  int64_t step = 0;  // from 1
  double loss = 0, learning_rate = 0, gradient_norm = 0, seconds = 0;
  double data_seconds = 0;  // of them: waited for the batch
  int64_t tokens_seen = 0;  // since the run began
  double decoded = 1;       // the part of this process's tokens whose logits were computed: those that are learned
  bool skipped = false;     // an outlier, or float16 gradients that were not finite: nothing was changed
  double loss_scale = 0;    // of float16 (loss_scale.h); 0: none
};
/// The score of validation windows after a step, and that of the averaged weights where there are some; of a task also
/// how many of its episodes were answered rightly: those that the windows show, at the end of the budget all tests.
struct EvalRecord : WindowScore {
  int64_t step = 0;
  double compared = 0;  // the loss of train.eval_windows: at the end of the budget too, so that steps can be compared
  double average_compared = 0;  // likewise of the averaged weights
  std::optional<WindowScore> average = {};
  std::optional<TaskScore> task = {}, average_task = {};
};

/// What the model does after a step, and what the step did to it.
struct DiagnosisRecord {
  int64_t step = 0;
  std::vector<LayerProbe> layers;               // on windows of the validation text, the same each time
  std::map<std::string, double> update_ratios;  // Optimizer::measured_step; empty: the step was left out
};

/// A loss or gradient that is no finite number: the fault of the model or its settings, not of the machine.
class Diverged : public Error {
 public:
  using Error::Error;
};

/// The same of an evaluation: the step has been made, and what it left is of no use.
class DivergedAfterStep : public Diverged {
 public:
  using Diverged::Diverged;
};

/// An interrupt that all processes met after the same step, which is saved.
class StoppedTogether : public Interrupted {
 public:
  using Interrupted::Interrupted;
};

/// Trains one model step by step. The budget is steps, tokens or minutes of TrainOptions. What a step computes is a
/// function of the options, the data and what state() and tensors() give after the step before.
///
/// With several processes each has the whole model and computes its part of the rows of every batch; the step is that
/// of one process to rounding. All of them call the same functions, and stop together.
class Trainer {
 public:
  /// The model moves to train.device and takes the dtype of train.dtype: float64 parameters, or float32 ones, under
  /// autocast for bfloat16. Throws UsageError for a pattern of train.no_decay that names no parameter, and for an
  /// objective that does not suit model or data, and for a batch that processes cannot share equally.
  Trainer(Model, const TextData&, const TrainOptions&, std::shared_ptr<Processes> = std::make_shared<Processes>());

  bool done() const;
  /// One optimiser step. Throws Diverged when the loss or a gradient is not finite, naming the step, the data and the
  /// first layer or parameter; and when too many steps are outliers. It has changed nothing then.
  StepRecord step();
  /// Whether the step just made is followed by an evaluation that has not been made.
  bool evaluation_due() const { return evaluation_due_; }
  /// Scores windows of the validation text, evenly spread: train.eval_windows, at the end of the budget
  /// train.final_eval_windows. Throws DivergedAfterStep likewise.
  EvalRecord evaluate();
  /// Whether the step just made is one that train.diagnose_every asks about.
  bool diagnosis_due() const { return step_ > 0 && measures(step_); }
  /// Changes nothing that later steps depend on; one process alone may.
  DiagnosisRecord diagnose();
  /// Throws Interrupted when a signal came, to any of the processes, before the step just made.
  void check_stop() const;
  /// Whether the step just made is one after which a checkpoint is kept.
  bool checkpoint_due() const { return checkpoint_due_; }

  int64_t steps_done() const { return step_; }
  int64_t planned_steps() const;  // estimated when the budget is minutes
  int64_t tokens_per_step() const { return train_.tokens_per_step(); }
  double seconds() const { return seconds_; }  // of steps alone
  ModelImpl& model() { return *model_; }

  /// Everything beside parameters and tensors() that later steps depend on.
  nlohmann::json state() const;
  /// The optimiser's and the average's, by name; as Optimizer::state().
  std::vector<std::pair<std::string, Tensor>> tensors() const;
  Processes& processes() { return *processes_; }
  const Optimizer& optimizer() const { return optimizer_; }
  const WeightAverage& average() const { return average_; }
  /// Continues after the step of `state`; parameters have their values already, and so have `tensors`, which are
  /// tensors().
  void restore(const nlohmann::json& state, const std::vector<std::pair<std::string, Tensor>>& tensors);

 private:
  double progress() const;  // of the budget, 0 to 1
  double rate_factor() const;
  std::vector<int64_t> eval_windows(bool at_end) const;
  Batch rows(int64_t step, int64_t first, int64_t count);
  std::optional<TaskScore> task_score(const std::vector<int64_t>& windows);
  TokenTensors micro_batch(int64_t step, int64_t first);
  Dropout dropout(int64_t first_row) const;
  Tensor backward_of_nothing() const;
  /// Whether the optimiser's step can be made before the host knows the loss.
  bool steps_unseen(int64_t step) const;
  bool measures(int64_t step) const { return train_.diagnose_every > 0 && step % train_.diagnose_every == 0; }
  Tensor backward(StepRecord&);
  void take_numbers(StepRecord&, const Tensor& loss, const Tensor& gradient_norm);
  [[noreturn]] void fail_not_finite(const StepRecord&);
  std::string data_of_step();

  Model model_;
  TrainOptions train_;
  const TokenSequence& tokens_;
  Batches batches_;
  std::optional<Masking> masks_;  // of the masked objective
  ScoredTokens validation_;
  std::shared_ptr<const Task> task_;  // null: of a text
  std::shared_ptr<Processes> processes_;
  Optimizer optimizer_;
  MeanGradients mean_gradients_;
  Outliers outliers_;
  LossScale loss_scale_;
  WeightAverage average_;
  int64_t step_ = 0;
  double seconds_ = 0;
  std::optional<std::pair<int64_t, TokenTensors>> ahead_;  // the first micro batch of a step that has not begun
  std::map<std::string, double> update_ratios_;            // of the step just made, if it was measured
  bool evaluation_due_ = false, checkpoint_due_ = false;
  int stop_signal_ = 0;  // that came to one of several processes; 0: none
};

/// What the first `steps` steps read of each part of a mixture.
std::vector<PartUse> use_of_parts(const TextData&, const TrainOptions&, int64_t steps);

/// A line of metrics.jsonl.
nlohmann::json metrics_record(const StepRecord&);
nlohmann::json metrics_record(const EvalRecord&);
nlohmann::json metrics_record(const DiagnosisRecord&);

struct TrainResult {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;  // the last one is after the last step
  double seconds = 0;
};
struct TrainEvents {
  std::function<void(const StepRecord&)> step = [](const StepRecord&) {};
  std::function<void(const DiagnosisRecord&)> diagnosed;  // none: nothing is diagnosed
  std::function<void(const EvalRecord&)> evaluated = [](const EvalRecord&) {};
  std::function<void()> between = [] {};  // after each step, and after its evaluation if it has one
};

/// Runs what is left of the budget. Throws Interrupted on Ctrl-C, between two steps or in an evaluation.
TrainResult train_model(Trainer&, const TrainEvents&);

}  // namespace motet
