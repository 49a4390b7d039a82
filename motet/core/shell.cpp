#include "motet/core/shell.h"

namespace motet {

std::string shell_quoted(const std::string& argument) {
  const char* safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!argument.empty() && argument.find_first_not_of(safe) == std::string::npos) return argument;
  std::string out = "'";
  for (const char character : argument) out += character == '\'' ? "'\\''" : std::string(1, character);
  return out + "'";
}

}  // namespace motet
