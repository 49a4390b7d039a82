#include "motet/train/trainer.h"

#include <ATen/autocast_mode.h>

#include <chrono>
#include <cmath>
#include <numbers>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

BatchOptions batch_options(const nlohmann::json& train, const TextData& data) {
  return {train.at("batch_size").get<int64_t>(), train.at("context").get<int64_t>(),
          train.at("data_seed").get<uint64_t>(), data.documents_apart};
}

AdamWOptions adamw_options(const nlohmann::json& train) {
  return {train.at("beta1").get<double>(), train.at("beta2").get<double>(), train.at("epsilon").get<double>(),
          train.at("weight_decay").get<double>()};
}

constexpr double kEvaluationShare = 0.1;  // of the budget between evaluations when eval_every is 0

int64_t step_tokens(const nlohmann::json& train) {
  return train.at("batch_size").get<int64_t>() * train.at("context").get<int64_t>();
}

[[noreturn]] void diverged(int64_t step, const char* what, double value, const std::string& place) {
  throw Diverged(text("step ", step, ": ", what, " is ", std::abs(value),
                      "; the first number that is not finite appears in ", place.empty() ? "the loss" : place));
}

}  // namespace

int64_t budget_steps(const nlohmann::json& train) {
  if (const int64_t steps = train.at("steps").get<int64_t>(); steps > 0) return steps;
  const int64_t tokens = train.at("tokens").get<int64_t>(), each = step_tokens(train);
  return (tokens + each - 1) / each;
}

AutocastScope::AutocastScope(const std::string& dtype) : active_(dtype == "bfloat16") {
  if (!active_) return;
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

Trainer::Trainer(Model model, const TextData& data, const nlohmann::json& train)
    : model_(std::move(model)),
      data_(data),
      train_(train),
      batches_(*data.train, batch_options(train, data)),
      eval_windows_(eval_windows(*data.validation, train.at("context").get<int64_t>(), 0,
                                 train.at("eval_windows").get<int64_t>(), data.documents_apart)),
      optimizer_(*model_, adamw_options(train)) {}

int64_t Trainer::tokens_per_step() const { return step_tokens(train_); }

int64_t Trainer::planned_steps() const {
  if (const int64_t steps = budget_steps(train_); steps > 0) return steps;
  const double seconds = 60 * train_.at("minutes").get<double>();
  return step_ == 0 ? 1 : std::max<int64_t>(step_, std::llround(static_cast<double>(step_) * seconds / seconds_));
}

double Trainer::progress() const {
  if (const double minutes = train_.at("minutes").get<double>(); minutes > 0) return seconds_ / (60 * minutes);
  return static_cast<double>(step_) / static_cast<double>(planned_steps());
}

bool Trainer::done() const { return progress() >= 1; }

double Trainer::learning_rate() const {
  const double peak = train_.at("learning_rate").get<double>(), last = train_.at("final_learning_rate").get<double>();
  const double warmup = train_.at("warmup").get<double>();
  const double at =
      std::min(progress() + (train_.at("minutes") > 0 ? 0 : 1.0 / static_cast<double>(planned_steps())), 1.0);
  if (at < warmup) return peak * at / warmup;
  const double fall = warmup < 1 ? (at - warmup) / (1 - warmup) : 1;
  return peak * (last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * fall)));
}

Tensor Trainer::loss_of(const TokenTensors& tokens) {
  const AutocastScope autocast(train_.at("dtype").get<std::string>());
  return token_loss(model_->forward(tokens.inputs, tokens.documents), tokens.targets);
}

StepRecord Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const TokenTensors tokens = as_tensors(batches_.next());
  StepRecord record{.step = step_ + 1, .learning_rate = learning_rate()};
  const Tensor loss = loss_of(tokens);
  record.loss = loss.item<double>();
  if (!std::isfinite(record.loss))
    diverged(record.step, "the loss", record.loss, model_->first_non_finite(tokens.inputs, tokens.documents));
  optimizer_.zero_grad();
  loss.backward();
  record.gradient_norm = optimizer_.clip(train_.at("clip").get<double>());
  if (!std::isfinite(record.gradient_norm))
    throw Diverged(text("step ", record.step, ": the gradient's norm is ", std::abs(record.gradient_norm)));
  optimizer_.step(record.learning_rate);
  ++step_;
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  seconds_ += record.seconds;
  return record;
}

double mean_loss(ModelImpl& model, const Batch& windows, int64_t rows) {
  at::NoGradGuard no_grad;
  double sum = 0;
  for (int64_t row = 0; row < windows.rows; row += rows) {
    check_interrupt();
    const Batch part = batch_rows(windows, row, rows);
    const TokenTensors tokens = as_tensors(part);
    const Tensor loss = token_loss(model.forward(tokens.inputs, tokens.documents), tokens.targets);
    sum += loss.item<double>() * static_cast<double>(part.rows);
  }
  return sum / static_cast<double>(windows.rows);
}

EvalRecord Trainer::evaluate() {
  const int64_t rows = train_.at("batch_size").get<int64_t>();
  const double loss = mean_loss(*model_, eval_windows_, rows);
  if (std::isfinite(loss)) return {step_, loss};
  std::string place;
  for (int64_t row = 0; row < eval_windows_.rows && place.empty(); row += rows) {
    const TokenTensors tokens = as_tensors(batch_rows(eval_windows_, row, rows));
    place = model_->first_non_finite(tokens.inputs, tokens.documents);
  }
  diverged(step_, "the validation loss", loss, place);
}

bool Trainer::evaluation_due() {
  if (done()) return true;
  if (const int64_t every = train_.at("eval_every").get<int64_t>(); every > 0) return step_ % every == 0;
  if (progress() < next_evaluation_ - 1e-9) return false;
  while (next_evaluation_ - 1e-9 <= progress()) next_evaluation_ += kEvaluationShare;
  return true;
}

TrainResult train_model(Trainer& trainer, const TrainEvents& events) {
  TrainResult result;
  while (!trainer.done()) {
    check_interrupt();
    result.steps.push_back(trainer.step());
    events.step(result.steps.back());
    if (!trainer.evaluation_due()) continue;
    result.evals.push_back(trainer.evaluate());
    events.evaluated(result.evals.back());
  }
  result.seconds = trainer.seconds();
  return result;
}

}  // namespace motet
