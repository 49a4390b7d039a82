#include "motet/tasks/task.h"

#include <numeric>

#include "motet/core/error.h"
#include "motet/tasks/entries.h"

namespace motet {

std::vector<int64_t> Draws::different(int64_t count, int64_t total) {
  std::vector<int64_t> all(static_cast<size_t>(total));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < count; ++i)
    std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(i + below(total - i))]);
  all.resize(static_cast<size_t>(count));
  return all;
}

double chance(const Task& task, const Episode& episode) {
  if (episode.told > 1) return static_cast<double>(episode.right) / static_cast<double>(episode.told);
  return 1 / static_cast<double>(episode.others.empty() ? task.answers() : 1 + std::ssize(episode.others));
}

const std::vector<TaskEntry>& task_registry() {
  static const std::vector<TaskEntry> all{where_select_entry(), noisy_recall_entry(), passkey_entry(), episodes_entry(),
                                          facts_entry()};
  return all;
}

namespace {

// The row of a name, and the options beside it.
std::pair<const TaskEntry&, nlohmann::json> found(const nlohmann::json& given, const std::string& section) {
  if (!given.is_object() || !given.contains("name") || !given["name"].is_string())
    fail_usage(section, ": want a table with the name of a task");
  std::vector<std::string> known;
  for (const TaskEntry& entry : task_registry()) {
    if (given["name"] == entry.name) {
      nlohmann::json options = given;
      options.erase("name");
      return {entry, options};
    }
    known.emplace_back(entry.name);
  }
  throw UsageError(section + ": " + unknown_name("task", given["name"].get<std::string>(), known));
}

}  // namespace

nlohmann::json resolved_task(const nlohmann::json& given, const std::string& section) {
  const auto [entry, options] = found(given, section);
  nlohmann::json all = resolve(entry.options, options, section);
  if (entry.complete) entry.complete(all);
  all["name"] = entry.name;
  return all;
}

std::unique_ptr<Task> make_task(const nlohmann::json& given, const std::string& section) {
  const auto [entry, options] = found(given, section);
  return entry.make(options, section);
}

}  // namespace motet
