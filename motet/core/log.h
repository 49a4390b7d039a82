// Lines for people, on stderr. MOTET_LOG sets the least level that is shown: quiet, warn, info (default), debug.
#pragma once

#include <string>

namespace motet {

enum class LogLevel { quiet, warn, info, debug };

// The level of MOTET_LOG. Throws UsageError when it names none.
LogLevel log_level();

// One line each; thread-safe; "motet: warning: " and "motet: debug: " mark those that are no plain information.
void log_warn(const std::string& line);
void log_info(const std::string& line);
void log_debug(const std::string& line);

// Whether escape sequences may be written to the descriptor: a terminal, no NO_COLOR, TERM not "dumb".
bool color_allowed(int descriptor);

}  // namespace motet
