#include "motet/train/task_data.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/data/hash.h"
#include "motet/layers/streams.h"
#include "motet/train/freeze.h"

namespace motet {
namespace {

constexpr const char* kTable = "model.embed_tokens.weight";
constexpr int64_t kMostNumbers = 1 << 28;  // of the table that says which parts a token has

// Numbers of the parts of composite tokens; 0: it has none.
int32_t parts_of(const Task& task) {
  int32_t most = -1;
  for (const auto& own : task.parts()) most = std::max(most, *std::ranges::max_element(own));
  return most + 1;
}

}  // namespace

TextData task_data(const std::shared_ptr<const Task>& task, const std::string& name, uint64_t episodes, uint64_t seed) {
  TextData data{.name = name, .tokenizer = nullptr};
  data.train = std::make_shared<EpisodeTokens>(task, seed, episodes, false);
  data.validation = std::make_shared<EpisodeTokens>(task, kTestSeed, kTestEpisodes, true);
  return data;
}

TextData task_data(const RunConfig& run) {
  const auto seed = static_cast<uint64_t>(run.train.data_seed) + 1;
  if (seed == kTestSeed) fail_usage("train.data_seed: ", run.train.data_seed, " is that of the tests, want another");
  const std::shared_ptr<const Task> task = make_task(run.task, "data.task");
  TextData data = task_data(task, run.task.at("name"), EpisodeTokens::kEndless, seed);
  data.task = task;
  constexpr uint64_t kHashed = 64;  // as many episodes tell another version of the task
  Hash64 hash;
  for (const int64_t id : data.train->slice(0, kHashed * data.train->row_length())) hash.add(text(id, " "));
  data.hashes = {{"episodes", hash_text(hash.value())}};
  return data;
}

void fit_to_task(ModelOptions& options, const Task& task) {
  const int64_t parts = parts_of(task);
  if (parts == 0) return;
  if (task.vocabulary() > kMostNumbers / parts)
    fail_usage("data.task: ", task.vocabulary(), " tokens of ", parts, " parts make a table of ",
               task.vocabulary() * parts, " numbers, want at most ", kMostNumbers);
  if (options.embedding_size != 0 && options.embedding_size != parts)
    fail_usage("model.embedding_size: ", options.embedding_size, ", want the ", parts, " parts of the task's tokens");
  options.embedding_size = parts;
}

std::vector<std::string> fixed_parameters(const Task& task) {
  return parts_of(task) > 0 ? std::vector<std::string>{kTable} : std::vector<std::string>();
}

void fix_embedding(ModelImpl& model, const Task& task, int64_t seed) {
  const auto parts = task.parts();
  if (parts.empty()) return;
  at::NoGradGuard no_grad;
  Tensor table = model.named_parameters()[kTable];
  Tensor made = at::zeros(table.sizes(), at::kFloat);
  auto rows = made.accessor<float, 2>();
  for (size_t id = 0; id < parts.size(); ++id)
    for (const int32_t part : parts[id]) rows[static_cast<int64_t>(id)][part] += 1;
  table.copy_(made);
  // Parts as far apart as PyTorch's embeddings begin: a step of the optimiser then moves them little.
  const std::string projection = "model.embed_projection.weight";
  Streams(static_cast<uint64_t>(seed)).normal(projection, model.named_parameters()[projection], 1);
  freeze(model, {kTable});
}

}  // namespace motet
