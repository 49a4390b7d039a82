// The environment variables of Motet. Nothing else of the project reads the environment, except for NO_COLOR and TERM
// (core/log), what launchers of several processes say (core/place) and what the front sets for OpenMP and torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motet {

// Those of docs/environment.md.
const std::vector<std::string>& environment_names();

// The value, as it was at the first call of any; null when it is unset or empty. Throws Error for a name that is none
// of those. Thread-safe.
const std::string* environment(std::string_view name);

// One line for each other MOTET_* that the environment holds: a slip of the pen, or another program's.
std::vector<std::string> environment_warnings();

}  // namespace motet
