#include "motet/train/plan.h"

#include "motet/core/error.h"

namespace motet {
namespace {

// What the backward pass needs of every layer and token: inputs of both norms, of the attention and of the output
// projection, queries, keys and values; three tensors of the feed-forward. Mechanisms keep more.
constexpr int64_t kKeptOfWidth = 6, kKeptOfFeedForward = 3;

}  // namespace

TrainingPlan training_plan(const ModelConfig& config, const TrainOptions& train) {
  Model model(config, at::kMeta);
  TrainingPlan plan{.cost = model_cost(*model)};
  const int64_t number = train.dtype == TrainDtype::float64 ? 8 : 4,
                activation = train.dtype == TrainDtype::bfloat16 ? 2 : number;
  plan.checkpoint_bytes = plan.cost.parameters * number;
  plan.training_bytes = 4 * plan.checkpoint_bytes;
  const int64_t layer = kKeptOfWidth * config.hidden_size() + kKeptOfFeedForward * config.intermediate_size();
  plan.activation_bytes =
      train.tokens_per_step() * (config.num_layers() * layer * activation + 2 * config.vocab_size * number);
  return plan;
}

void check_memory(const TrainingPlan& plan, std::optional<int64_t> available) {
  if (!available || plan.training_bytes + plan.activation_bytes <= *available) return;
  if (plan.training_bytes > *available)
    fail("train: parameters, gradients and moments of the optimiser take ", plan.training_bytes,
         " bytes, want at most the ", *available, " that are free: a smaller model.hidden_size or model.num_layers");
  fail("train: a step takes at least ", plan.activation_bytes, " bytes beside ", plan.training_bytes,
       " of the model, want at most the ", *available, " that are free: a smaller train.batch_size or train.context");
}

void check_disk(const std::filesystem::path& folder, int64_t bytes) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error || bytes <= 0 || static_cast<uint64_t>(bytes) <= space.available) return;
  fail("--out: the checkpoints take ", bytes, " bytes, want at most the ", space.available, " that are free in ",
       folder.string());
}

}  // namespace motet
