#include "motet/lab/task_cell.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/layers/streams.h"
#include "motet/probe/probe.h"
#include "motet/tasks/episodes.h"
#include "motet/train/freeze.h"

namespace motet {
namespace {

constexpr uint64_t kTestEpisodes = 10'000, kTestSeed = 1'000'000;
constexpr int64_t kTokensAtOnce = 1 << 16;
constexpr const char* kTable = "model.embed_tokens.weight";

// A number of each token of episodes of one length, [B,T] int64.
template <class Numbers>
Tensor rows_of(const std::vector<Episode>& episodes, Numbers Episode::* numbers) {
  const auto length = static_cast<int64_t>(episodes.front().ids.size()), count = static_cast<int64_t>(episodes.size());
  Tensor rows = at::empty({count, length}, at::kLong);
  for (int64_t i = 0; i < count; ++i)
    std::copy_n((episodes[static_cast<size_t>(i)].*numbers).begin(), length,
                rows.mutable_data_ptr<int64_t>() + i * length);
  return rows;
}

// Whether each answer is the likeliest token.
std::vector<bool> solved(ModelImpl& model, const std::vector<Episode>& episodes) {
  const auto length = static_cast<int64_t>(episodes.front().ids.size()), count = static_cast<int64_t>(episodes.size());
  const Tensor last = model.hidden(rows_of(episodes, &Episode::ids).to(model.device())).slice(1, length - 1);
  const Tensor found = model.logits(last).argmax(-1).flatten().cpu();
  std::vector<bool> right;
  for (int64_t i = 0; i < count; ++i)
    right.push_back(found.const_data_ptr<int64_t>()[i] == episodes[static_cast<size_t>(i)].answer);
  return right;
}

}  // namespace

int64_t TaskCell::longest() const {
  int64_t most = 0;
  for (const Test& test : tests) most = std::max(most, test.task->length());
  return most;
}

TaskCell read_task(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("data.task: want a table with the name of a task");
  nlohmann::json own = given;
  own.erase("test");
  TaskCell out{.given = resolved_task(own, "data.task"), .tests = {{"", make_task(own, "data.task")}}};
  if (!given.contains("test")) return out;
  if (!given["test"].is_array()) fail_usage("data.task.test: want a list of tables");
  for (const nlohmann::json& test : given["test"]) {
    if (!test.is_object() || !test.contains("name") || !test["name"].is_string())
      fail_usage("data.task.test: want tables with a name and the options that differ");
    const std::string name = test["name"];
    if (name.find(',') == name.npos && name.find('=') == name.npos)
      fail_usage("data.task.test: ", quote(name), ", want a name that says the sizes, as in n=512");
    for (const TaskCell::Test& other : out.tests)
      if (other.name == name) fail_usage("data.task.test: ", quote(name), " is there twice");
    nlohmann::json variant = own;
    for (const auto& [key, value] : test.items())
      if (key != "name") variant[key] = value;
    out.tests.push_back({test["name"], make_task(variant, "data.task.test")});
    out.given["test"].push_back(test);
    if (out.tests.back().task->vocabulary() != out.task().vocabulary())
      fail_usage("data.task.test: ", test["name"].get<std::string>(), " has other tokens than the task");
  }
  return out;
}

TextData task_data(const TaskCell& cell, uint64_t episodes, uint64_t seed) {
  TextData data{.name = cell.given.at("name"), .tokenizer = nullptr};
  const std::shared_ptr<const Task> task = cell.tests.front().task;
  data.train = std::make_shared<EpisodeTokens>(task, seed, episodes, false);
  data.validation = std::make_shared<EpisodeTokens>(task, kTestSeed, kTestEpisodes, true);
  return data;
}

void fit_to_task(ModelConfig& config, const TaskCell& cell) {
  config.context = std::max(config.context, cell.longest());
  if (const auto parts = cell.task().parts(); !parts.empty()) {
    int32_t most = 0;
    for (const auto& own : parts) most = std::max(most, *std::ranges::max_element(own));
    config.options.embedding_size = most + 1;
  }
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

std::map<std::string, double> shares(ModelImpl& model, const TaskCell& cell) {
  constexpr uint64_t kEpisodes = 256;
  std::vector<Episode> episodes;
  for (uint64_t i = 0; i < kEpisodes; ++i) episodes.push_back(cell.task().episode(kTestSeed, i, true));
  const std::vector<std::string> kinds = cell.task().kinds();
  const auto layers =
      attention_shares(model, rows_of(episodes, &Episode::ids).to(model.device()),
                       rows_of(episodes, &Episode::kinds).to(model.device()), static_cast<int64_t>(kinds.size()));
  std::map<std::string, double> out;
  for (const auto& layer : layers)
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      out["share{" + kinds[kind] + "}"] += layer[kind] / static_cast<double>(layers.size());
  return out;
}

std::map<std::string, double> accuracies(ModelImpl& model, const TaskCell& cell) {
  at::NoGradGuard no_grad;
  std::map<std::string, std::pair<int64_t, int64_t>> counts;  // right, all
  for (const TaskCell::Test& test : cell.tests) {
    const uint64_t at_once = std::max<int64_t>(1, kTokensAtOnce / test.task->length());
    const uint64_t all = std::max<uint64_t>(
        kTestEpisodes * static_cast<uint64_t>(cell.task().length()) / static_cast<uint64_t>(test.task->length()), 1000);
    for (uint64_t first = 0; first < all; first += at_once) {
      check_interrupt();
      std::vector<Episode> episodes;
      for (uint64_t i = first; i < std::min(first + at_once, all); ++i)
        episodes.push_back(test.task->episode(kTestSeed, i, true));
      const std::vector<bool> right = solved(model, episodes);
      for (size_t i = 0; i < right.size(); ++i) {
        const std::string& slice = episodes[i].slice;
        std::vector<std::string> names{test.name.empty() ? "accuracy" : "accuracy{" + test.name + "}"};
        if (test.name.empty() && !slice.empty()) names.push_back("accuracy{" + slice + "}");
        for (const std::string& name : names) counts[name].first += right[i], ++counts[name].second;
      }
    }
  }
  std::map<std::string, double> out;
  for (const auto& [name, count] : counts)
    out[name] = static_cast<double>(count.first) / static_cast<double>(count.second);
  return out;
}

}  // namespace motet
