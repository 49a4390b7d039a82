#include <algorithm>

#include "motet/core/error.h"
#include "motet/lab/train_cell.h"
#include "motet/models/lengthen.h"

namespace motet {
namespace {

using nlohmann::json;

Then read_then(const json& given, const json& config) {
  if (!given.is_object()) fail_usage("then: want a table");
  json set = json::array();
  Then out{.run = {}, .positions = json::object()};
  for (const auto& [key, value] : given.items()) {
    if (key != "model" && key != "train")
      fail_usage(unknown_name("option", "then." + key, {"then.model", "then.train"}));
    if (!value.is_object()) fail_usage("then.", key, ": want a table");
    for (const auto& [name, own] : value.items()) {
      if (key == "train")
        set.push_back({"train." + name, own});
      else if (name == "attention" && own.is_object())
        out.positions = own;
      else
        fail_usage("then.model.", name, ": comes from the training, want attention = { ", joined(position_options()),
                   " }");
    }
  }
  const auto budget = [&](const char* key) { return given.value("train", json::object()).contains(key); };
  if (!budget("steps") && !budget("tokens")) fail_usage("then.train: want steps or tokens");
  out.run = read_run_config({{"set", set}}, config);
  return out;
}

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

}  // namespace

TrainCell read_train_cell(const Lab& lab, const json& options, int64_t seed, double rate) {
  json config = json::object(), then;
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
    else if (key == "recall")
      out.recall = read_recall(value);
    else if (key == "watch" && value.is_boolean())
      out.watch = value;
    else if (key == "then")
      then = value;
    else if (section)
      config[key].merge_patch(value);
    else if (key == "watch")
      fail_usage("watch: ", value.dump(), ", want true or false");
    else
      fail_usage(
          unknown_name("option", key,
                       {"data", "lengths", "look", "match", "mechanism", "model", "recall", "then", "train", "watch"}));
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
  if (!then.is_null()) out.then = read_then(then, config);
  if (out.task && (out.then || out.recall)) fail_usage("then and recall: are of a text, want them left out of a task");
  if (out.watch && (out.then || out.run.train.minutes > 0))
    fail_usage("watch: is of one training of steps or tokens, want neither then nor minutes");
  for (TrainOptions* train : {&out.run.train, out.then ? &out.then->run.train : nullptr}) {
    if (!train) continue;
    scale_rates(*train, rate);
    train->seed += seed - 1, train->data_seed += seed - 1;
  }
  return out;
}

}  // namespace motet
