// A cell that trains a model on a text or a task, and scores it.
#include <cmath>

#include "motet/core/error.h"
#include "motet/lab/train_cell.h"
#include "motet/lab/watch.h"
#include "motet/models/cost.h"
#include "motet/models/lengthen.h"
#include "motet/ops/device.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr size_t kCurvePoints = 50;

// The model of a cell, in size equal to the baseline's.
ModelConfig model_of(const Lab& lab, const ExperimentCell& cell, const TrainCell& own, int64_t vocabulary) {
  ModelConfig config = own.run.model_config(vocabulary);
  if (own.task) fit_to_task(config, *own.task);
  if (cell.options == cell.baseline || own.match == Match::none) return config;
  const TrainCell baseline = read_train_cell(lab, cell.baseline, cell.seed, 1);
  ModelConfig first = baseline.run.model_config(vocabulary);
  if (baseline.task) fit_to_task(first, *baseline.task);
  match_size(config, own.match, size_of(first, own.match));
  return config;
}

struct Prepared {
  TrainCell cell;
  std::shared_ptr<const TextData> data;
  ModelConfig config;
  std::shared_ptr<const TextData> data_then = nullptr;
  ModelConfig config_then = {};  // without a second training that of the first

  int64_t trained() const { return cell.run.train.context; }  // T of lengths
};

Prepared prepared(Lab& lab, const ExperimentCell& cell) {
  Prepared out{.cell = read_train_cell(lab, cell.options, cell.seed, cell.rate), .data = nullptr, .config = {}};
  const TrainOptions& train = out.cell.run.train;
  if (const std::optional<TaskCell>& task = out.cell.task) {
    if (train.minutes > 0)
      fail_usage("train.minutes: a task wants a budget of steps or tokens, for its episodes are counted");
    const auto episodes = static_cast<uint64_t>(train.budget_steps() * train.batch_size);
    out.data = std::make_shared<const TextData>(task_data(*task, episodes, static_cast<uint64_t>(cell.seed)));
    out.config = model_of(lab, cell, out.cell, task->task().vocabulary());
  } else {
    out.data = lab.data_of(out.cell.run);
    out.config = model_of(lab, cell, out.cell, vocabulary_for(*out.data->tokenizer, train));
  }
  out.config_then = out.config;
  if (const std::optional<Then>& then = out.cell.then) {
    const int64_t context = then->run.train.context;
    out.config_then = lengthened(out.config, context > out.config.context ? context : 0, then->positions);
    out.data_then = lab.data_of(then->run);
  }
  return out;
}

// What of [train] changes a number.
json numbers_of(json train) {
  for (const char* key : {"device", "keep_last", "keep_best", "checkpoint_every", "async_checkpoint", "diagnose_every"})
    train.erase(key);
  return train;
}

json configuration(Lab& lab, const ExperimentCell& cell) {
  read_train_cell(lab, cell.options, 1, cell.rate);  // refuses a rate that is none
  ExperimentCell first = cell;
  first.seed = 1, first.rate = 1;
  const Prepared own = prepared(lab, first);
  json out = own.cell.run.resolved();
  out["model"]["intermediate_size"] = own.config.intermediate_size();
  out["data"].erase("text");  // a path of this machine; the hashes tell what it is
  out["data"]["name"] = own.data->name;
  if (own.cell.lengths) check_lengths(own.config_then, own.trained(), *own.cell.lengths);
  if (own.cell.look) check_look(own.config_then, *own.data->validation, *own.cell.look);
  if (own.cell.recall) check_recall(own.config_then, *own.cell.recall);
  for (const char* key : {"lengths", "look", "recall", "watch"})
    if (cell.options.contains(key)) out[key] = cell.options[key];
  if (own.cell.then)
    out["then"] = {{"attention", own.config_then.attention},
                   {"train", numbers_of(own.cell.then->run.resolved()["train"])}};
  if (own.cell.task)
    check_tests(own.config, *own.cell.task), out["data"]["task"] = own.cell.task->given;
  else
    out["data"]["hashes"] = own.data->hashes;
  out["train"] = numbers_of(out["train"]);
  return out;
}

std::vector<std::string> metrics(Lab& lab, const ExperimentCell& cell) {
  const TrainCell own = read_train_cell(lab, cell.options, cell.seed, 1);
  std::vector<std::string> all{"validation_loss"};
  const auto add = [&](const std::vector<std::string>& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (own.lengths) add(metrics_of(*own.lengths));
  if (own.look) add(metrics_of(*own.look));
  if (own.recall) add(recall_metrics());
  if (own.watch) add(watch_metrics());
  if (own.task) add(metrics_of(*own.task));
  return all;
}

std::unique_ptr<Trainer> trainer_of(const Prepared& own) {
  Model model(own.config, parse_device(own.cell.run.train.device));
  model->initialize(static_cast<uint64_t>(own.cell.run.train.seed));
  if (own.cell.task) fix_embedding(*model, own.cell.task->task(), own.cell.run.train.seed);
  return std::make_unique<Trainer>(model, *own.data, own.cell.run.train);
}

// The same parameters, in a trainer of the second training.
std::unique_ptr<Trainer> second_trainer(const Prepared& own, ModelImpl& trained) {
  return std::make_unique<Trainer>(with_config(trained, own.config_then), *own.data_then, own.cell.then->run.train);
}

// Runs a training and adds to the cell what it came to. Throws Diverged; what was watched is there then.
void train(Trainer& trainer, const TrainOptions& options, bool watch, CellResult& out, const CellProgress& progress) {
  const ModelCost cost = model_cost(trainer.model());
  out.parameters = cost.parameters;
  const int64_t planned = trainer.planned_steps();
  const double warmup = options.warmup < 1 ? options.warmup * static_cast<double>(planned) : options.warmup;
  Watched seen{.losses = {}, .gradient_norms = {}, .planned = planned, .warmup = std::llround(warmup)};
  TrainEvents events;
  events.step = [&](const StepRecord& r) {
    seen.losses.push_back(r.loss), seen.gradient_norms.push_back(r.gradient_norm);
    progress(static_cast<double>(r.step) / static_cast<double>(trainer.planned_steps()));
  };
  const auto end = [&](bool diverged) {
    seen.diverged = diverged;
    if (watch) out.metrics.merge(watched(seen));
  };
  try {
    const TrainResult result = train_model(trainer, events);
    const auto before = static_cast<double>(out.tokens);
    const size_t every = result.evals.size() / kCurvePoints + 1;
    for (size_t i = 0; i < result.evals.size(); ++i)
      if ((result.evals.size() - 1 - i) % every == 0)
        out.curve.emplace_back(before + static_cast<double>(result.evals[i].step * trainer.tokens_per_step()),
                               result.evals[i].loss);
    out.metrics["validation_loss"] = result.evals.back().loss;
  } catch (const Diverged&) {
    end(true);
    throw;
  }
  const int64_t tokens = trainer.steps_done() * trainer.tokens_per_step();
  out.tokens += tokens, out.flops += 3 * cost.flops_per_token * static_cast<double>(tokens);
  end(false);
}

void run(Lab& lab, const ExperimentCell& cell, CellResult& out, const CellProgress& progress) {
  const Prepared own = prepared(lab, cell);
  const TrainCell& wants = own.cell;
  std::unique_ptr<Trainer> trainer = trainer_of(own);
  train(*trainer, wants.run.train, wants.watch, out, progress);
  if (wants.then) {
    trainer = second_trainer(own, trainer->model());
    train(*trainer, wants.then->run.train, false, out, progress);
  }
  ModelImpl& model = trainer->model();
  const TextData& data = wants.then ? *own.data_then : *own.data;
  if (wants.lengths) out.metrics.merge(losses_at(model, own.trained(), *data.validation, *wants.lengths));
  if (wants.look) out.metrics.merge(looked(model, *data.validation, *wants.look));
  if (wants.recall) out.metrics.merge(recall_losses(model, *data.train, *data.validation, *wants.recall));
  if (wants.task) {
    out.metrics.merge(accuracies(model, *wants.task));
    out.metrics.merge(shares(model, *wants.task));
  }
}

// Of the budget's steps at the speed of a few.
double seconds_of(Trainer& trainer, const TrainOptions& budget) {
  if (budget.minutes > 0) return budget.minutes * 60;
  trainer.step();
  double total = 0;
  int64_t measured = 0;
  for (; measured < 5 || (total < 0.5 && measured < 50); ++measured) total += trainer.step().seconds;
  return static_cast<double>(budget.budget_steps()) * total / static_cast<double>(measured);
}

std::optional<double> seconds(Lab& lab, const ExperimentCell& cell) try {
  Prepared own = prepared(lab, cell);
  const auto without_end = [](TrainOptions& train) { train.steps = 1'000'000, train.tokens = 0; };
  const TrainOptions first = own.cell.run.train;
  if (first.minutes == 0) without_end(own.cell.run.train);
  std::unique_ptr<Trainer> trainer = trainer_of(own);
  double all = seconds_of(*trainer, first);
  if (own.cell.then) {
    const TrainOptions second = own.cell.then->run.train;
    without_end(own.cell.then->run.train);
    all += seconds_of(*second_trainer(own, trainer->model()), second);
  }
  return all;
} catch (const Diverged&) {
  return std::nullopt;  // as the cell will
}

}  // namespace

const CellKind kTrainCell{.name = "train",
                          .alone = false,
                          .configuration = configuration,
                          .metrics = metrics,
                          .run = run,
                          .seconds = seconds};

}  // namespace motet
