#include "motet/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <numeric>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/words.h"
#include "motet/ops/device.h"
#include "motet/tasks/episodes.h"
#include "motet/train/freeze.h"
#include "motet/train/loss.h"
#include "motet/train/plan.h"
#include "motet/train/schedule.h"
#include "motet/train/shared_score.h"

namespace motet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Batches batches_of(const TextData& data, const TrainOptions& train) {
  std::vector<BatchPart> parts;
  for (const TextSource& part : data.parts) parts.push_back(part.rows);
  return {*data.train,
          {train.batch_size, train.context, static_cast<uint64_t>(train.data_seed), data.documents_apart},
          parts};
}

// Enough tokens for a standard error below 0.005 nats where a token's loss deviates by 3.5, more than models do.
constexpr int64_t kFinalTokens = 500'000;

// A look takes a part of a step's time: on as many tokens, however large the batch.
constexpr int64_t kProbedTokens = 2048;

// Where the positions of a row begin, from 0 to train.position_offset.
int64_t start_of_row(const TrainOptions& train, uint64_t row) {
  constexpr uint64_t kStream = 0x73746172u;  // apart from the other uses of data_seed
  const uint64_t key = splitmix64(static_cast<uint64_t>(train.data_seed), kStream);
  return static_cast<int64_t>(splitmix64(key, row) % static_cast<uint64_t>(train.position_offset + 1));
}

Model placed(Model model, const TextData& data, const TrainOptions& train, int64_t processes) {
  check_training(*model, data, train, processes);
  model->to(parse_device(train.device), train.dtype == TrainDtype::float64 ? at::kDouble : at::kFloat);
  model->set_autocast(autocast_of(train.dtype));
  model->set_precision(train.matmul_precision, "train.matmul_precision");
  model->set_recompute(train.recompute == Recompute::block);
  return model;
}

// The validation text as the objective scores it.
ScoredTokens validation_of(const TextData& data, const ModelConfig& config, const TrainOptions& train) {
  ScoredTokens scored{*data.validation, data.token_bytes, train.context, data.documents_apart};
  if (train.objective == Objective::masked) scored.masks = scored_masks(config, data.tokenizer.get());
  return scored;
}

// Two numbers in one copy: a step waits for the device once.
std::pair<double, double> on_the_host(const Tensor& a, const Tensor& b) {
  at::NoGradGuard no_grad;
  const Tensor both = at::stack({a.to(at::kDouble), b.to(a.device(), at::kDouble)}).to(at::kCPU);
  return {both[0].item<double>(), both[1].item<double>()};
}

// Those that the model says, without what matches a pattern of train.no_decay.
Optimizer::Decays decays(const ModelImpl& model, const TrainOptions& train) {
  const auto patterns = train.no_decay.empty() ? std::vector<std::string>() : split(train.no_decay, ',');
  return [&model, patterns](const std::string& name, const Tensor& p) {
    return model.decays(name, p) &&
           std::ranges::none_of(patterns, [&](const std::string& pattern) { return matches(pattern, name); });
  };
}

std::vector<Tensor> learned_parameters(const ModelImpl& model) {
  std::vector<Tensor> all;
  for (const Tensor& p : model.parameters())
    if (p.requires_grad()) all.push_back(p);
  return all;
}

// Whether a step that took the run from one part of its budget to another passed the end of a tenth.
bool passed_a_tenth(double before, double now) {
  const auto tenths = [](double part) { return std::floor((part + 1e-9) * static_cast<double>(kTimesInARun)); };
  return tenths(now) > tenths(before);
}

}  // namespace

Trainer::Trainer(Model model, const TextData& data, const TrainOptions& train, std::shared_ptr<Processes> processes)
    : model_(placed(std::move(model), data, train, processes->size())),
      train_(train),
      tokens_(*data.train),
      batches_(batches_of(data, train)),
      masks_(training_masks(model_->config(), data.tokenizer.get(), train)),
      validation_(validation_of(data, model_->config(), train)),
      task_(data.task),
      processes_(std::move(processes)),
      optimizer_(*model_, optimizer_options(train), decays(*model_, train),
                 train.shard_optimizer ? processes_.get() : nullptr),
      mean_gradients_(*processes_, learned_parameters(*model_)),
      outliers_(train.skip_outliers),
      loss_scale_(train.dtype == TrainDtype::float16),
      average_(*model_, train.average) {
  check_batch(train, processes_->size());
}

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

double Trainer::rate_factor() const {
  const double own = train_.minutes > 0 ? 0 : 1.0 / static_cast<double>(planned_steps());  // this step's
  return learning_rate_factor(train_, progress() + own, planned_steps());
}

Batch Trainer::rows(int64_t step, int64_t first, int64_t count) {
  Batch batch = batches_.rows(step, first, count);
  std::vector<uint64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), static_cast<uint64_t>(step * train_.batch_size + first));
  if (masks_) masks_->hide(batch, numbers);
  if (train_.position_offset > 0)
    for (const uint64_t row : numbers) batch.starts.push_back(start_of_row(train_, row));
  return batch;
}

TokenTensors Trainer::micro_batch(int64_t step, int64_t first) {
  const int64_t most = train_.rows_at_once(processes_->size()), end = processes_->part(train_.batch_size).second;
  return as_tensors(rows(step, first, std::min(most, end - first)), model_->device());
}

Dropout Trainer::dropout(int64_t first_row) const {
  return {train_.dropout, splitmix64(static_cast<uint64_t>(train_.seed), static_cast<uint64_t>(step_)), first_row};
}

// Every parameter takes part, so that processes whose rows have nothing to learn join the others.
Tensor Trainer::backward_of_nothing() const {
  Tensor zero = at::zeros({}, at::TensorOptions(model_->device()));
  for (const Tensor& p : learned_parameters(*model_)) zero = zero + (p * 0).sum();
  return zero;
}

bool Trainer::steps_unseen(int64_t step) const {
  return !model_->device().is_cpu() && processes_->alone() && !loss_scale_.on() && train_.skip_outliers == 0 &&
         train_.optimizer != OptimizerKind::muon && !measures(step);
}

// Gradients of the batch, and its loss.
Tensor Trainer::backward(StepRecord& record) {
  const auto [begin, end] = processes_->part(train_.batch_size);
  // Targets of the whole batch that are learned, of which a micro batch or a process has a part; -1: all are.
  const bool leaves_out = batches_.leaves_out() || masks_, parted = train_.micro_batch_size > 0 || !processes_->alone();
  const int64_t all_learned = parted && leaves_out ? rows(step_, 0, train_.batch_size).learned() : -1;
  const auto of_mean =
      static_cast<double>(processes_->size());  // the mean of gradients over processes is to be their sum
  Tensor sum;
  double decoded = 0, tokens_of_all = 0;
  for (int64_t first = begin, rows = 0; first < end; first += rows) {
    const Clock::time_point asked = Clock::now();
    const bool ready = ahead_ && ahead_->first == step_ && first == begin;
    const TokenTensors tokens = ready ? std::exchange(ahead_, std::nullopt)->second : micro_batch(step_, first);
    record.data_seconds += seconds_since(asked);
    rows = tokens.inputs.size(0);
    const int64_t learned = tokens.asked.defined() ? tokens.asked.size(0) : -1;
    tokens_of_all += static_cast<double>(tokens.inputs.numel());
    decoded += static_cast<double>(learned < 0 ? tokens.inputs.numel() : learned);
    const bool last = first + rows == end;
    if (learned == 0 && (processes_->alone() || !last || all_learned == 0)) continue;
    if (last) mean_gradients_.prepare();
    TrainingLoss loss;
    if (learned == 0) {
      loss.objective = backward_of_nothing(), loss.cross_entropy = loss.objective.detach();
    } else {
      const double share = rows == train_.batch_size ? 1
                           : learned < 0 ? static_cast<double>(rows) / static_cast<double>(train_.batch_size)
                                         : static_cast<double>(learned) / static_cast<double>(all_learned);
      // In float16 gradients have the size that they have in one process, which overflows no earlier.
      const double factor = share * (loss_scale_.on() ? loss_scale_.value() : of_mean);
      loss = training_loss(*model_, tokens, train_, dropout(first), factor);
      if (share != 1) loss.cross_entropy = loss.cross_entropy * share;
    }
    loss.objective.backward();
    sum = sum.defined() ? sum + loss.cross_entropy : loss.cross_entropy;
  }
  if (!sum.defined())  // the steps before it are saved
    throw Diverged(text("step ", record.step, ": no token of the batch is learned; it has ", data_of_step()));
  record.decoded = decoded / tokens_of_all;
  loss_scale_.unscale(optimizer_.gradients(), of_mean);
  return sum;
}

// Waits for the device.
void Trainer::take_numbers(StepRecord& record, const Tensor& loss, const Tensor& gradient_norm) {
  std::tie(record.loss, record.gradient_norm) = on_the_host(loss, gradient_norm);
  if (processes_->alone()) return;
  // What all have to know before they go on.
  std::vector<double> told{record.loss};
  for (const int signal : kEndingSignals) told.push_back(interrupt_signal() == signal);
  const Tensor all = at::tensor(told, at::kDouble);
  processes_->sum(all);
  record.loss = all[0].item<double>();
  for (size_t i = 0; i < std::size(kEndingSignals); ++i)
    if (all[static_cast<int64_t>(i) + 1].item<double>() > 0) stop_signal_ = kEndingSignals[i];
}

void Trainer::check_stop() const {
  if (processes_->alone()) return check_interrupt();
  if (stop_signal_ == 0) return;
  interrupt(stop_signal_);
  throw Interrupted("interrupted");
}

StepRecord Trainer::step() {
  const Clock::time_point start = Clock::now();
  const double factor = rate_factor(), before = progress();
  StepRecord record{.step = step_ + 1, .learning_rate = factor * train_.learning_rate};
  processes_->at_step(step_);
  optimizer_.zero_grad();
  const Tensor loss = backward(record), gradient_norm = optimizer_.gradient_norm();
  const bool unseen = steps_unseen(record.step);
  if (unseen) {  // while the device computes
    ahead_ = {step_ + 1, micro_batch(step_ + 1, 0)};
    optimizer_.clip_and_step(factor, train_.clip, gradient_norm, loss);
  }
  take_numbers(record, loss, gradient_norm);
  const bool finite = std::isfinite(record.gradient_norm);
  if (!std::isfinite(record.loss) || (!finite && !loss_scale_.can_fall())) fail_not_finite(record);
  if (loss_scale_.on()) record.loss_scale = loss_scale_.value();
  LossScale scale = loss_scale_;
  Outliers outliers = outliers_;
  record.skipped = !scale.update(finite) || outliers.is_one(record.loss, record.gradient_norm);
  if (outliers.too_many(record.step))
    throw Diverged(text("step ", record.step, ": ", outliers.count(), " steps were outliers, more than 1 %; ",
                        "want a smaller train.learning_rate or a larger train.skip_outliers"));
  loss_scale_ = scale, outliers_ = std::move(outliers);
  update_ratios_.clear();
  if (!record.skipped && !unseen) {
    optimizer_.clip(train_.clip, record.gradient_norm);
    if (measures(record.step))
      update_ratios_ = optimizer_.measured_step(factor);
    else
      optimizer_.step(factor);
  }
  ++step_;
  synchronize(model_->device());
  record.seconds = seconds_since(start), record.tokens_seen = step_ * tokens_per_step();
  seconds_ += record.seconds;
  if (train_.minutes > 0 && !processes_->alone()) {  // one clock decides
    const Tensor seconds = at::full({}, processes_->first() ? seconds_ : 0, at::kDouble);
    processes_->sum(seconds);
    seconds_ = seconds.item<double>();
  }
  const auto due = [&](int64_t every) {
    return done() || (every > 0 ? step_ % every == 0 : passed_a_tenth(before, progress()));
  };
  evaluation_due_ = due(train_.eval_every), checkpoint_due_ = due(train_.checkpoint_every);
  average_.step(checkpoint_due_);
  return record;
}

// The numbers of the documents of each row, or its tokens where there are no documents.
std::string Trainer::data_of_step() {
  constexpr size_t kMostRows = 16;
  std::string documents, tokens;
  bool any = false;
  const auto add = [](std::string& list, uint64_t first, uint64_t last) {
    list += text(list.empty() ? "" : ", ", first, last > first ? text("-", last) : "");
  };
  std::vector<RowSource> rows = batches_.sources(step_, 0, train_.batch_size);
  const bool cut = rows.size() > kMostRows;
  if (cut) rows.resize(kMostRows);
  for (const RowSource& row : rows) {
    const uint64_t end = row.token + static_cast<uint64_t>(train_.context),
                   first = tokens_.document_starts(0, row.token + 1).size(),
                   last = first + tokens_.document_starts(row.token, end).size();
    any = any || last > 0;
    add(documents, first, last), add(tokens, row.token, end - 1);
  }
  return text(any ? "documents " + documents : "tokens " + tokens, cut ? ", ..." : "");
}

// Nothing has been stepped. Gradients that are not finite spread from the output towards the embedding.
void Trainer::fail_not_finite(const StepRecord& record) {
  std::string place;
  if (!processes_->first()) throw Diverged(text("step ", record.step));  // the first one looks for the place
  if (!std::isfinite(record.loss)) {
    const int64_t most = train_.rows_at_once(processes_->size());
    for (int64_t first = 0; first < train_.batch_size && place.empty(); first += most) {
      const TokenTensors tokens =
          as_tensors(rows(step_, first, std::min(most, train_.batch_size - first)), model_->device());
      place = model_->first_non_finite(tokens.inputs, tokens.documents);
    }
    place = place.empty() ? "the loss" : place;
  } else {
    for (const auto& item : model_->named_parameters()) {
      const Tensor& gradient = item.value().grad();
      if (gradient.defined() && !gradient.isfinite().all().item<bool>()) place = "the gradient of " + item.key();
    }
  }
  throw Diverged(text("step ", record.step, ": ",
                      std::isfinite(record.loss) ? text("the gradient's norm is ", std::abs(record.gradient_norm))
                                                 : text("the loss is ", std::abs(record.loss)),
                      "; the first number that is not finite appears in ", place, "; the batch has ", data_of_step()));
}

std::vector<int64_t> Trainer::eval_windows(bool at_end) const {
  const int64_t all = num_eval_windows(validation_.tokens, validation_.context);
  if (!at_end) return spread_windows(all, train_.eval_windows);
  const int64_t last = train_.final_eval_windows;
  return spread_windows(all, last > 0 ? last : (kFinalTokens + validation_.context - 1) / validation_.context);
}

std::optional<TaskScore> Trainer::task_score(const std::vector<int64_t>& windows) {
  if (!task_) return std::nullopt;
  if (!done()) return score_task(*processes_, *model_, *task_, windows);
  const auto asked = static_cast<uint64_t>(train_.final_eval_windows);
  return score_task(*processes_, *model_, *task_,
                    first_episodes(asked > 0 ? std::min(asked, kTestEpisodes) : kTestEpisodes));
}

EvalRecord Trainer::evaluate() {
  // No more than a step has.
  const AtOnce at_once{std::min(train_.rows_at_once(processes_->size()), windows_at_once(train_.context)),
                       train_.loss_rows};
  const auto score = [&](const std::vector<int64_t>& windows) {
    return score_windows(*processes_, *model_, validation_, windows, at_once);
  };
  const std::vector<int64_t> which = eval_windows(done()), few = eval_windows(false);
  const auto compared = [&](const WindowScore& scored) { return few == which ? scored.loss : score(few).loss; };
  EvalRecord record{score(which), step_};
  if (std::isfinite(record.loss)) {
    record.compared = compared(record);
    record.task = task_score(which);
    if (average_.ready()) {
      const WeightAverage::Applied averaged(average_);
      record.average = score(which);
      record.average_compared = compared(*record.average);
      record.average_task = task_score(which);
    }
    evaluation_due_ = false;  // one that was interrupted is made again
    return record;
  }
  evaluation_due_ = false;
  if (!processes_->first()) throw DivergedAfterStep(text("step ", step_));
  std::string place;
  for (size_t i = 0; i < which.size() && place.empty(); ++i) {
    const TokenTensors tokens = as_tensors(scored_batch(validation_, {&which[i], 1}), model_->device());
    place = model_->first_non_finite(tokens.inputs, tokens.documents);
  }
  throw DivergedAfterStep(text("step ", step_, ": the validation loss is ", std::abs(record.loss),
                               "; the first number that is not finite appears in ",
                               place.empty() ? "the loss" : place));
}

DiagnosisRecord Trainer::diagnose() {
  const int64_t rows = std::clamp<int64_t>(kProbedTokens / train_.context, 1, train_.batch_size);
  const std::vector<int64_t> which = spread_windows(num_eval_windows(validation_.tokens, validation_.context), rows);
  const TokenTensors tokens = as_tensors(scored_batch(validation_, which), model_->device());
  return {step_, probe(*model_, tokens.inputs, tokens.documents), update_ratios_};
}

nlohmann::json Trainer::state() const {
  nlohmann::json state{{"step", step_},
                       {"seconds", seconds_},
                       {"evaluation_due", evaluation_due_},
                       {"checkpoint_due", checkpoint_due_},
                       {"outliers", outliers_.state()}};
  if (loss_scale_.on()) state["loss_scale"] = loss_scale_.state();
  if (!train_.average.empty()) state["averaged"] = average_.state();
  return state;
}

std::vector<std::pair<std::string, Tensor>> Trainer::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all = optimizer_.state();
  for (auto& own : average_.tensors()) all.push_back(std::move(own));
  return all;
}

void Trainer::restore(const nlohmann::json& state, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  optimizer_.take(tensors);
  step_ = state.at("step").get<int64_t>();
  seconds_ = state.at("seconds").get<double>();
  evaluation_due_ = state.at("evaluation_due").get<bool>();
  checkpoint_due_ = evaluation_due_ && state.value("checkpoint_due", false);  // its loss is not in it yet
  outliers_.restore(state.at("outliers"));
  if (loss_scale_.on()) loss_scale_.restore(state.at("loss_scale"));
  if (!train_.average.empty()) average_.restore(state.at("averaged").get<int64_t>());
}

std::vector<PartUse> use_of_parts(const TextData& data, const TrainOptions& train, int64_t steps) {
  return batches_of(data, train).use(steps);
}

nlohmann::json metrics_record(const StepRecord& r) {
  nlohmann::json record{{"step", r.step},
                        {"loss", r.loss},
                        {"learning_rate", r.learning_rate},
                        {"gradient_norm", r.gradient_norm},
                        {"seconds", r.seconds},
                        {"data_seconds", r.data_seconds},
                        {"tokens_seen", r.tokens_seen}};
  if (r.skipped) record["skipped"] = true;
  if (r.loss_scale > 0) record["loss_scale"] = r.loss_scale;
  return record;
}

nlohmann::json metrics_record(const EvalRecord& r) {
  nlohmann::json record{{"step", r.step},
                        {"validation_loss", r.loss},
                        {"standard_error", r.error},
                        {"windows", r.windows},
                        {"tokens", r.tokens}};
  if (r.masked) record["accuracy"] = r.accuracy();
  if (r.bytes > 0) record["bytes"] = r.bytes, record["bits_per_byte"] = r.bits_per_byte();
  if (r.average) record["average_validation_loss"] = r.average->loss;
  if (r.task) {
    record["accuracy"] = r.task->all.accuracy(), record["episodes"] = r.task->all.episodes;
    if (r.task->has_others)
      record["misattributed"] = r.task->all.part(r.task->all.misattributed),
      record["fabricated"] = r.task->all.part(r.task->all.fabricated());
    for (const auto& [slice, counts] : r.task->slices) record["accuracy_by_slice"][slice] = counts.accuracy();
  }
  if (r.average_task) record["average_accuracy"] = r.average_task->all.accuracy();
  return record;
}

nlohmann::json metrics_record(const DiagnosisRecord& r) {
  nlohmann::json record{{"step", r.step}, {"layers", nlohmann::json::array()}, {"update_ratio", r.update_ratios}};
  for (const LayerProbe& layer : r.layers) {
    nlohmann::json one{{"largest_logit", layer.largest_logit}};
    for (const HeadNumbers& numbers : layer.numbers) {
      one[numbers.name] = numbers.mean();
      if (numbers.by_head.size() > 1) one[numbers.name + "_by_head"] = numbers.by_head;
    }
    record["layers"].push_back(one);
  }
  return record;
}

TrainResult train_model(Trainer& trainer, const TrainEvents& events) {
  TrainResult result;
  while (true) {
    if (trainer.evaluation_due()) {
      result.evals.push_back(trainer.evaluate());
      events.evaluated(result.evals.back());
    }
    if (trainer.steps_done() > 0) events.between();
    if (trainer.done()) break;
    trainer.check_stop();
    result.steps.push_back(trainer.step());
    events.step(result.steps.back());
    if (events.diagnosed && trainer.diagnosis_due()) events.diagnosed(trainer.diagnose());
  }
  result.seconds = trainer.seconds();
  return result;
}

}  // namespace motet
