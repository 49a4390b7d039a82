#include "motet/train/plan.h"

#include <algorithm>
#include <numeric>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/train/average.h"
#include "motet/train/run_config.h"

namespace motet {
namespace {

// What the backward pass needs of every layer and token: inputs of both norms, of the attention and of the output
// projection, queries, keys and values; three tensors of the feed-forward. Mechanisms keep more.
constexpr int64_t kKeptOfWidth = 6, kKeptOfFeedForward = 3;

}  // namespace

TrainingPlan training_plan(const ModelConfig& config, const TrainOptions& train, int64_t processes) {
  check_batch(train, processes);
  Model model(config, at::kMeta);
  TrainingPlan plan{.cost = model_cost(*model)};
  const int64_t number = train.dtype == TrainDtype::float64 ? 8 : 4, activation = autocast_of(train.dtype) ? 2 : number,
                averages = WeightAverage::copies(train.average);
  plan.checkpoint_bytes = plan.cost.parameters * number;
  const bool one_moment = train.optimizer == OptimizerKind::sgd;
  const int64_t held = (one_moment ? 2 : 3) + averages;
  plan.run_checkpoint_bytes = (held + (averages > 0 ? 1 : 0)) * plan.checkpoint_bytes;
  const bool sharded = train.shard_optimizer && processes > 1;
  const int64_t moments = (one_moment ? 1 : 2) * plan.checkpoint_bytes;
  plan.training_bytes = (1 + held) * plan.checkpoint_bytes - (sharded ? moments - moments / processes : 0) +
                        (train.async_checkpoint ? plan.run_checkpoint_bytes : 0);
  // Gradients go round as sums, in two rounds (arXiv:1802.05799); parameters that others have stepped in a third.
  plan.exchanged_bytes = (sharded ? 3 : 2) * (processes - 1) * plan.checkpoint_bytes / processes;
  const int64_t layer = kKeptOfWidth * config.hidden_size() + kKeptOfFeedForward * config.intermediate_size();
  const int64_t tokens = train.rows_at_once(processes) * train.context,
                logits = train.loss_rows > 0 ? std::min(train.loss_rows, tokens) : tokens,
                layers = train.recompute == Recompute::block ? 1 : config.num_layers(),
                inputs = train.recompute == Recompute::block ? config.num_layers() * config.hidden_size() : 0;
  plan.activation_bytes = tokens * (layers * layer + inputs) * activation + logits * 2 * config.vocab_size * number;
  return plan;
}

void check_batch(const TrainOptions& train, int64_t processes) {
  if (train.batch_size % processes != 0)
    fail_usage("train.batch_size: ", train.batch_size, " examples for ", processes, " processes, want a multiple of ",
               processes);
}

void check_memory(const TrainingPlan& plan, std::optional<int64_t> available, int64_t processes) {
  const int64_t model = processes * plan.training_bytes, step = processes * plan.activation_bytes;
  if (!available || model + step <= *available) return;
  const std::string who = processes > 1 ? text(" of ", processes, " processes") : "";
  if (model > *available)
    fail("train: parameters, gradients and the state of the optimiser", who, " take ", model,
         " bytes, want at most the ", *available, " that are free: a smaller model.hidden_size or model.num_layers");
  fail("train: a step", who, " takes at least ", step, " bytes beside ", model, " of the model, want at most the ",
       *available, " that are free: a smaller train.micro_batch_size or train.context, or train.recompute = block");
}

std::string remark_on_best(const TrainOptions& train) {
  const int64_t evaluated = train.eval_every, saved = train.checkpoint_every, steps = train.budget_steps();
  const bool some = train.keep_best > 0 && train.keep_last > 0 && evaluated > 0 && saved > 0 && saved < steps;
  if (!some || std::lcm(evaluated, saved) < steps) return "";
  return text("train.keep_best: of the checkpoints (every ", saved, " steps) none but the last falls on an evaluation ",
              "(every ", evaluated, "), so none but the last can be the best");
}

int64_t checkpoints_at_once(const TrainOptions& train) {
  const int64_t every = train.checkpoint_every, steps = train.budget_steps();
  int64_t made = every > 0 && steps == 0 ? INT64_MAX : every > 0 ? (steps + every - 1) / every : kTimesInARun;
  if (steps > 0) made = std::min(made, steps);
  const int64_t bests = train.average.empty() ? 1 : 2;  // of each kind of weights
  if (train.keep_last > 0) return std::min(made, train.keep_last + bests * train.keep_best + 1);
  return made < INT64_MAX ? made : kTimesInARun;  // nobody knows how many
}

void check_disk(const std::filesystem::path& folder, int64_t bytes, const std::vector<std::string>& stored) {
  for (const std::string& name : stored) bytes -= bytes_below(folder / name);
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error || bytes <= 0 || static_cast<uint64_t>(bytes) <= space.available) return;
  fail(folder.string(), ": checkpoints take ", bytes, " bytes more, want at most the ", space.available,
       " that are free");
}

}  // namespace motet
