// A cell that trains a model on a text or a task, and scores it.
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/lab/lab.h"
#include "motet/lab/lengths.h"
#include "motet/lab/look.h"
#include "motet/lab/task_cell.h"
#include "motet/models/cost.h"
#include "motet/ops/device.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr size_t kCurvePoints = 50;

// The options of a cell: sections model, train and data as in a run's configuration, `mechanism` as a contender of a
// comparison, and what is equal between it and the baseline.
struct TrainCell {
  RunConfig run;
  Match match = Match::parameters;
  std::optional<TaskCell> task;    // in place of a text
  std::optional<Lengths> lengths;  // at which the trained model is scored
  std::optional<Look> look;        // at the trained model
};

// The learning rates that the optimiser has, times a factor.
void scale_rates(TrainOptions& train, double factor) {
  const auto scale = [&](const char* key, double& rate) {
    const Option& option = find_option(train_options().table(), key, "train");
    rate = checked(option, rate * factor, text("train.", key, " times ", factor));
  };
  if (factor == 1) return;
  scale("learning_rate", train.learning_rate);
  if (train.optimizer == OptimizerKind::muon) scale("muon_learning_rate", train.muon_learning_rate);
}

TrainCell read_cell(const Lab& lab, const json& options, int64_t seed, double rate) {
  json config = json::object();
  TrainCell out;
  for (const auto& [key, value] : options.items()) {
    const bool section = key == "model" || key == "train" || key == "data";
    if (section && !value.is_object()) fail_usage("options.", key, ": want a table");
    if (key == "mechanism")
      config["model"]["attention"]["mechanism"] = value;
    else if (key == "match")
      out.match = value_of(match_words(), value.is_string() ? value.get<std::string>() : value.dump(), "match");
    else if (key == "lengths")
      out.lengths = read_lengths(value);
    else if (key == "look")
      out.look = read_look(value);
    else if (section)
      config[key].merge_patch(value);
    else
      fail_usage(unknown_name("option", key, {"data", "lengths", "look", "match", "mechanism", "model", "train"}));
  }
  config["train"]["device"] = lab.options().device;
  json& data = config["data"];
  if (data.contains("task")) {
    if (data.contains("text")) fail_usage("data.text and data.task: want one of them");
    if (config["train"].contains("context")) fail_usage("train.context: is the length of an episode, want it left out");
    out.task = read_task(data["task"]);
    data.erase("task");
    config["train"]["context"] = out.task->task().row_length();
  }
  if (data.contains("text") && data["text"].is_string()) {
    const std::filesystem::path folder = lab.options().data / data["text"].get<std::string>();
    if (!std::filesystem::exists(folder))
      fail_usage("its data is not there, want ", quote(folder.string()), ": experiments/README.md says how to make it");
    data["text"] = folder.string();
  }
  out.run = read_run_config(json::object(), config);
  scale_rates(out.run.train, rate);
  out.run.train.seed += seed - 1, out.run.train.data_seed += seed - 1;
  return out;
}

// The model of a cell, in size equal to the baseline's.
ModelConfig model_of(const Lab& lab, const ExperimentCell& cell, const TrainCell& own, int64_t vocabulary) {
  ModelConfig config = own.run.model_config(vocabulary);
  if (own.task) fit_to_task(config, *own.task);
  if (cell.options == cell.baseline || own.match == Match::none) return config;
  const TrainCell baseline = read_cell(lab, cell.baseline, cell.seed, 1);
  ModelConfig first = baseline.run.model_config(vocabulary);
  if (baseline.task) fit_to_task(first, *baseline.task);
  match_size(config, own.match, size_of(first, own.match));
  return config;
}

struct Prepared {
  TrainCell cell;
  std::shared_ptr<const TextData> data;
  ModelConfig config;
};

Prepared prepared(Lab& lab, const ExperimentCell& cell) {
  Prepared out{.cell = read_cell(lab, cell.options, cell.seed, cell.rate), .data = nullptr, .config = {}};
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
  return out;
}

json configuration(Lab& lab, const ExperimentCell& cell) {
  read_cell(lab, cell.options, 1, cell.rate);  // refuses a rate that is none
  ExperimentCell first = cell;
  first.seed = 1, first.rate = 1;
  const Prepared own = prepared(lab, first);
  json out = own.cell.run.resolved();
  out["model"]["intermediate_size"] = own.config.intermediate_size();
  out["data"].erase("text");  // a path of this machine; the hashes tell what it is
  out["data"]["name"] = own.data->name;
  if (own.cell.lengths) check_lengths(own.config, *own.cell.lengths), out["lengths"] = cell.options["lengths"];
  if (own.cell.look) check_look(own.config, *own.cell.look), out["look"] = cell.options["look"];
  if (own.cell.task)
    out["data"]["task"] = own.cell.task->given;
  else
    out["data"]["hashes"] = own.data->hashes;
  for (const char* key : {"device", "keep_last", "keep_best", "checkpoint_every", "async_checkpoint", "diagnose_every"})
    out["train"].erase(key);  // none of these changes a number
  return out;
}

std::unique_ptr<Trainer> trainer_of(const Prepared& own) {
  Model model(own.config, parse_device(own.cell.run.train.device));
  model->initialize(static_cast<uint64_t>(own.cell.run.train.seed));
  if (own.cell.task) fix_embedding(*model, own.cell.task->task(), own.cell.run.train.seed);
  return std::make_unique<Trainer>(model, *own.data, own.cell.run.train);
}

void run(Lab& lab, const ExperimentCell& cell, CellResult& out, const CellProgress& progress) {
  const Prepared own = prepared(lab, cell);
  const std::unique_ptr<Trainer> trainer = trainer_of(own);
  const ModelCost cost = model_cost(trainer->model());
  out.parameters = cost.parameters;
  TrainEvents events;
  events.step = [&](const StepRecord& r) {
    progress(static_cast<double>(r.step) / static_cast<double>(trainer->planned_steps()));
  };
  const TrainResult result = train_model(*trainer, events);
  out.tokens = trainer->steps_done() * trainer->tokens_per_step();
  out.flops = 3 * cost.flops_per_token * static_cast<double>(out.tokens);
  const size_t every = result.evals.size() / kCurvePoints + 1;
  for (size_t i = 0; i < result.evals.size(); ++i)
    if ((result.evals.size() - 1 - i) % every == 0)
      out.curve.emplace_back(static_cast<double>(result.evals[i].step * trainer->tokens_per_step()),
                             result.evals[i].loss);
  out.metrics["validation_loss"] = result.evals.back().loss;
  if (own.cell.lengths) out.metrics.merge(losses_at(trainer->model(), *own.data->validation, *own.cell.lengths));
  if (own.cell.look) out.metrics.merge(looked(trainer->model(), *own.data->validation, *own.cell.look));
  if (own.cell.task) {
    out.metrics.merge(accuracies(trainer->model(), *own.cell.task));
    out.metrics.merge(shares(trainer->model(), *own.cell.task));
  }
}

std::optional<double> seconds(Lab& lab, const ExperimentCell& cell) {
  Prepared own = prepared(lab, cell);
  const double steps = static_cast<double>(own.cell.run.train.budget_steps());
  if (own.cell.run.train.minutes > 0) return own.cell.run.train.minutes * 60;
  own.cell.run.train.steps = 1'000'000, own.cell.run.train.tokens = 0;
  const std::unique_ptr<Trainer> trainer = trainer_of(own);
  trainer->step();
  double total = 0;
  int64_t measured = 0;
  for (; measured < 5 || (total < 0.5 && measured < 50); ++measured) total += trainer->step().seconds;
  return steps * total / static_cast<double>(measured);
}

}  // namespace

const CellKind kTrainCell{
    .name = "train", .alone = false, .configuration = configuration, .run = run, .seconds = seconds};

}  // namespace motet
