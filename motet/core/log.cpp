#include "motet/core/log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "motet/core/environment.h"
#include "motet/core/error.h"

namespace motet {
namespace {

void write_line(LogLevel level, const char* mark, const std::string& line) {
  if (log_level() < level) return;
  // A progress bar may stand in this line of the terminal.
  const std::string out = std::string(isatty(STDERR_FILENO) ? "\r\x1b[K" : "") + mark + line + "\n";
  std::fwrite(out.data(), 1, out.size(), stderr);
}

}  // namespace

LogLevel log_level() {
  const std::string* name = environment("MOTET_LOG");
  if (!name) return LogLevel::info;
  const std::vector<std::string> levels = {"quiet", "warn", "info", "debug"};
  for (size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == *name) return static_cast<LogLevel>(i);
  }
  throw UsageError(unknown_name("level in MOTET_LOG", *name, levels));
}

void log_warn(const std::string& line) { write_line(LogLevel::warn, "motet: warning: ", line); }

void log_info(const std::string& line) { write_line(LogLevel::info, "", line); }

void log_debug(const std::string& line) { write_line(LogLevel::debug, "motet: debug: ", line); }

bool color_allowed(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(descriptor) && !(no_color && *no_color) && !(term && std::strcmp(term, "dumb") == 0);
}

}  // namespace motet
