#pragma once
#include "motet/commands/options.h"
#include "motet/report/table.h"

namespace motet {

/// Whether `motet eval` makes the episodes of a task of this name (motet/tasks).
bool is_task(const std::string& name);

/// A row for all episodes and one for each slice: how many were answered rightly, and how many a guess would. The
/// model was trained on the task, in sizes of which data.task.KEY of --set says others. Throws UsageError when it was
/// not, and for sizes that have other tokens.
Table task_table(const nlohmann::json& request, const EvalRequest&, const std::string& name);

}  // namespace motet
