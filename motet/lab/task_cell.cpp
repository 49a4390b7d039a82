#include "motet/lab/task_cell.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/models/lengthen.h"
#include "motet/probe/probe.h"

namespace motet {
namespace {

// As `motet eval` has a model for the options of a test.
ModelConfig config_for(const ModelConfig& trained, const TaskCell& cell, const TaskCell::Test& test) {
  nlohmann::json positions = test.scaling.options;
  if (trained.attention.at("rope_trained_length") == 0) positions["rope_trained_length"] = cell.task().row_length();
  return lengthened(trained, 0, positions);
}

std::string share_name(const std::string& kind) { return "share{" + kind + "}"; }

}  // namespace

int64_t TaskCell::longest() const {
  int64_t most = 0;
  for (const Test& test : tests) most = std::max(most, test.task->row_length() - 1);
  return most;
}

TaskCell read_task(const nlohmann::json& given) {
  if (!given.is_object()) fail_usage("data.task: want a table with the name of a task");
  nlohmann::json own = given;
  own.erase("test");
  TaskCell out{.given = resolved_task(own, "data.task"), .tests = {{"", make_task(own, "data.task")}}};
  const nlohmann::json task = out.given;  // what a test does not say is that of the training
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
    nlohmann::json variant = task;
    LengthScaling scaling;
    for (const auto& [key, value] : test.items())
      if (key == "scaling") {
        if (!value.is_string()) fail_usage("data.task.test: scaling: want a string, as in \"dynamic 4\"");
        scaling = read_scaling(value, "data.task.test: scaling");
      } else if (key != "name") {
        variant[key] = value;
      }
    out.tests.push_back({test["name"], make_task(variant, "data.task.test"), scaling});
    out.given["test"].push_back(test);
    if (out.tests.back().task->vocabulary() != out.task().vocabulary())
      fail_usage("data.task.test: ", test["name"].get<std::string>(), " has other tokens than the task");
  }
  return out;
}

TextData task_data(const TaskCell& cell, uint64_t episodes, uint64_t seed) {
  return task_data(cell.tests.front().task, cell.given.at("name"), episodes, seed);
}

void check_tests(const ModelConfig& config, const TaskCell& cell) {
  for (const TaskCell::Test& test : cell.tests)
    if (!test.scaling.name.empty()) config_for(config, cell, test);
}

void fit_to_task(ModelConfig& config, const TaskCell& cell) {
  config.context = std::max(config.context, cell.longest());
  fit_to_task(config.options, cell.task());
}

std::map<std::string, double> shares(ModelImpl& model, const TaskCell& cell) {
  constexpr uint64_t kEpisodes = 256;
  std::vector<std::vector<int64_t>> ids, own;
  for (uint64_t i = 0; i < kEpisodes; ++i) {
    const Episode episode = cell.task().episode(kTestSeed, i, true);
    ids.emplace_back(episode.ids.begin(), episode.ids.end()), own.push_back(episode.kinds);
  }
  const std::vector<std::string> kinds = cell.task().kinds();
  const auto layers = attention_shares(model, rows_of(ids).to(model.device()), rows_of(own).to(model.device()),
                                       static_cast<int64_t>(kinds.size()));
  std::map<std::string, double> out;
  for (const auto& layer : layers)
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      out[share_name(kinds[kind])] += layer[kind] / static_cast<double>(layers.size());
  return out;
}

std::map<std::string, double> accuracies(ModelImpl& model, const TaskCell& cell) {
  std::map<std::string, double> out;
  for (const TaskCell::Test& test : cell.tests) {
    const bool scaled = !test.scaling.name.empty();
    if (scaled && model.config().attention.at("rope_fraction") == 0) continue;
    const Model own = scaled ? with_config(model, config_for(model.config(), cell, test)) : Model(nullptr);
    const std::vector<int64_t> episodes = first_episodes(test_episodes(cell.task(), *test.task));
    const TaskScore score = score_task(scaled ? *own.ptr() : model, *test.task, episodes);
    // "accuracy", "accuracy{held out}", "accuracy{n=512}", "accuracy{n=512, held out}"
    const auto named = [&](const std::string& what, const std::string& slice = "") {
      const std::string inside = test.name + (test.name.empty() || slice.empty() ? "" : ", ") + slice;
      return inside.empty() ? what : what + "{" + inside + "}";
    };
    out[named("accuracy")] = score.all.accuracy();
    for (const auto& [slice, counts] : score.slices) out[named("accuracy", slice)] = counts.accuracy();
    if (!score.has_others) continue;
    out[named("misattributed")] = score.all.part(score.all.misattributed);
    out[named("fabricated")] = score.all.part(score.all.fabricated());
  }
  return out;
}

std::vector<std::string> metrics_of(const TaskCell& cell) {
  std::vector<std::string> out;
  for (const char* what : {"accuracy", "misattributed", "fabricated"}) {
    out.emplace_back(what);
    out.push_back(text(what, "{...}"));
  }
  for (const std::string& kind : cell.task().kinds()) out.push_back(share_name(kind));
  return out;
}

}  // namespace motet
