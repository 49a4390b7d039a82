#include "motet/commands/eval_task.h"

#include <algorithm>

#include "motet/checkpoints/checkpoint.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/models/lengthen.h"
#include "motet/ops/device.h"
#include "motet/tasks/episodes.h"
#include "motet/train/run_config.h"
#include "motet/train/task_score.h"

namespace motet {
namespace {

using nlohmann::json;

// The keys of --set: of the model's positions, and of the task.
struct Settings {
  json positions = json::object(), task = json::object();
};

Settings settings_of(const json& request) {
  const std::string attention = "model.attention.", task = "data.task.";
  Settings out;
  for (const auto& pair : request.value("set", json::array())) {
    const std::string key = pair[0];
    if (key.starts_with(task) && key != "data.task.name")
      out.task[key.substr(task.size())] = pair[1];
    else if (key.starts_with(attention))
      out.positions[key.substr(attention.size())] = pair[1];
    else
      fail_usage("--set: ", quote(key), ", want an option of the task, as in data.task.tokens, or a key of ", attention,
                 joined(position_options()));
  }
  return out;
}

Table table_of(const std::string& name, const TaskScore& score) {
  Table table{.columns = {{"task", Align::left},
                          {"slice", Align::left},
                          {"episodes"},
                          {"exact match", Align::right, "", "exact_match"},
                          {"+-", Align::right, "", "exact_match_stderr"},
                          {"chance"}}};
  if (score.has_others) table.columns.insert(table.columns.end(), {{"misattributed"}, {"fabricated"}});
  const auto number = [](double value) { return Cell{fixed(value, 4), value}; };
  const auto add = [&](const std::string& slice, const TaskScore::Counts& counts) {
    std::vector<Cell> row{name,
                          slice,
                          {std::to_string(counts.episodes), counts.episodes},
                          number(counts.accuracy()),
                          number(counts.error()),
                          number(counts.chance())};
    if (score.has_others)
      row.insert(row.end(), {number(counts.part(counts.misattributed)), number(counts.part(counts.fabricated()))});
    table.rows.push_back(row);
  };
  add("all", score.all);
  for (const auto& [slice, counts] : score.slices) add(slice, counts);
  return table;
}

}  // namespace

bool is_task(const std::string& name) {
  return std::ranges::any_of(task_registry(), [&](const TaskEntry& entry) { return entry.name == name; });
}

Table task_table(const json& request, const EvalRequest& asked, const std::string& name) {
  const std::filesystem::path folder = model_folder(request, "model");
  const Settings settings = settings_of(request);
  const at::Device device = parse_device(asked.device);
  Checkpoint checkpoint = open_checkpoint(folder);
  json options = task_of(folder);
  if (options.is_null())
    fail_usage(folder.string(), ": was not trained on a task, want a model of motet train --task ", name);
  if (options["name"] != name)
    fail_usage(folder.string(), ": was trained on ", options["name"].get<std::string>(), ", not on ", name);
  const std::unique_ptr<Task> trained = make_task(options, (folder / kTaskFile).string());
  options.update(settings.task);
  const std::unique_ptr<Task> own = make_task(options, "data.task");
  if (own->vocabulary() != checkpoint.config.vocab_size)
    fail_usage(folder.string(), ": has ", checkpoint.config.vocab_size, " tokens, want the ", own->vocabulary(), " of ",
               name, settings.task.empty() ? "" : " with these options");
  const int64_t needed = own->row_length() - 1;
  checkpoint.config =
      lengthened(checkpoint.config, needed > checkpoint.config.context ? needed : 0, settings.positions);
  Model model = load_for_scoring(checkpoint, asked, device);
  const uint64_t episodes = asked.limit > 0 ? static_cast<uint64_t>(asked.limit) : test_episodes(*trained, *own);
  const TaskScore score = score_task(*model, *own, first_episodes(episodes), asked.batch_size);
  if (!std::filesystem::exists(request.value("model", ""))) log_info("model: " + folder.string());
  return table_of(name, score);
}

}  // namespace motet
