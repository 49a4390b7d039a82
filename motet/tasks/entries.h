// The rows of the registry, each in the file of its name.
#pragma once

#include "motet/tasks/task.h"

namespace motet {

inline constexpr int64_t kMostComposite = 1'000'000;  // tokens of a task that are made of parts

TaskEntry where_select_entry();
TaskEntry noisy_recall_entry();
TaskEntry passkey_entry();
TaskEntry episodes_entry();
TaskEntry facts_entry();

}  // namespace motet
