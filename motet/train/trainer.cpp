#include "motet/train/trainer.h"

#include <chrono>
#include <cmath>
#include <numbers>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

BatchOptions batch_options(const TrainOptions& train, const TextData& data) {
  return {train.batch_size, train.context, static_cast<uint64_t>(train.data_seed), data.documents_apart};
}

AdamWOptions adamw_options(const TrainOptions& train) {
  return {train.beta1, train.beta2, train.epsilon, train.weight_decay};
}

constexpr double kEvaluationShare = 0.1;  // of the budget between evaluations when eval_every is 0

// Enough tokens for a standard error below 0.005 nats where a token's loss deviates by 3.5, more than models do.
constexpr int64_t kFinalTokens = 500'000;

Model placed(Model model, const TrainOptions& train) {
  model->to(parse_device(train.device), train.dtype == TrainDtype::float64 ? at::kDouble : at::kFloat);
  model->set_autocast(train.dtype == TrainDtype::bfloat16);
  return model;
}

// Two numbers in one copy: a step waits for the device once.
std::pair<double, double> on_the_host(const Tensor& a, const Tensor& b) {
  at::NoGradGuard no_grad;
  const Tensor both = at::stack({a.to(at::kDouble), b.to(a.device(), at::kDouble)}).to(at::kCPU);
  return {both[0].item<double>(), both[1].item<double>()};
}

[[noreturn]] void diverged(int64_t step, const char* what, double value, const std::string& place) {
  throw Diverged(text("step ", step, ": ", what, " is ", std::abs(value),
                      "; the first number that is not finite appears in ", place.empty() ? "the loss" : place));
}

}  // namespace

Trainer::Trainer(Model model, const TextData& data, const TrainOptions& train)
    : model_(placed(std::move(model), train)),
      train_(train),
      batches_(*data.train, batch_options(train, data)),
      validation_{*data.validation, data.token_bytes, train.context, data.documents_apart},
      optimizer_(*model_, adamw_options(train)) {}

int64_t Trainer::planned_steps() const {
  if (const int64_t steps = train_.budget_steps(); steps > 0) return steps;
  const double seconds = 60 * train_.minutes;
  return step_ == 0 ? 1 : std::max<int64_t>(step_, std::llround(static_cast<double>(step_) * seconds / seconds_));
}

double Trainer::progress() const {
  if (train_.minutes > 0) return seconds_ / (60 * train_.minutes);
  return static_cast<double>(step_) / static_cast<double>(planned_steps());
}

bool Trainer::done() const { return progress() >= 1; }

double Trainer::learning_rate() const {
  const double peak = train_.learning_rate, last = train_.final_learning_rate, warmup = train_.warmup;
  const double at = std::min(progress() + (train_.minutes > 0 ? 0 : 1.0 / static_cast<double>(planned_steps())), 1.0);
  if (at < warmup) return peak * at / warmup;
  const double fall = warmup < 1 ? (at - warmup) / (1 - warmup) : 1;
  return peak * (last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * fall)));
}

StepRecord Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const TokenTensors tokens = as_tensors(batches_.next(), model_->device());
  StepRecord record{.step = step_ + 1, .learning_rate = learning_rate()};
  const Tensor loss = ops::token_loss(model_->forward(tokens.inputs, tokens.documents), tokens.targets);
  optimizer_.zero_grad();
  loss.backward();
  std::tie(record.loss, record.gradient_norm) = on_the_host(loss, optimizer_.gradient_norm());
  if (!std::isfinite(record.loss))
    diverged(record.step, "the loss", record.loss, model_->first_non_finite(tokens.inputs, tokens.documents));
  if (!std::isfinite(record.gradient_norm))
    throw Diverged(text("step ", record.step, ": the gradient's norm is ", std::abs(record.gradient_norm)));
  optimizer_.clip(train_.clip, record.gradient_norm);
  optimizer_.step(record.learning_rate);
  ++step_;
  synchronize(model_->device());
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  seconds_ += record.seconds;
  return record;
}

std::vector<int64_t> Trainer::eval_windows() const {
  const int64_t all = num_eval_windows(validation_.tokens, validation_.context);
  if (!done()) return spread_windows(all, train_.eval_windows);
  const int64_t last = train_.final_eval_windows;
  return spread_windows(all, last > 0 ? last : (kFinalTokens + validation_.context - 1) / validation_.context);
}

EvalRecord Trainer::evaluate() {
  const std::vector<int64_t> which = eval_windows();
  const EvalRecord record{score_windows(*model_, validation_, which, train_.batch_size), step_};
  if (std::isfinite(record.loss)) return record;
  std::string place;
  for (size_t i = 0; i < which.size() && place.empty(); ++i) {
    const TokenTensors tokens =
        as_tensors(windows_at(validation_.tokens, validation_.context, {&which[i], 1}, validation_.documents_apart),
                   model_->device());
    place = model_->first_non_finite(tokens.inputs, tokens.documents);
  }
  diverged(step_, "the validation loss", record.loss, place);
}

bool Trainer::evaluation_due() {
  if (done()) return true;
  if (train_.eval_every > 0) return step_ % train_.eval_every == 0;
  if (progress() < next_evaluation_ - 1e-9) return false;
  while (next_evaluation_ - 1e-9 <= progress()) next_evaluation_ += kEvaluationShare;
  return true;
}

nlohmann::json metrics_record(const StepRecord& r) {
  return {{"step", r.step},
          {"loss", r.loss},
          {"learning_rate", r.learning_rate},
          {"gradient_norm", r.gradient_norm},
          {"seconds", r.seconds}};
}

nlohmann::json metrics_record(const EvalRecord& r) {
  nlohmann::json record{
      {"step", r.step}, {"validation_loss", r.loss}, {"standard_error", r.error}, {"tokens", r.tokens}};
  if (r.bytes > 0) record["bits_per_byte"] = r.bits_per_byte();
  return record;
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
