// Words of a command as a shell reads them.
#pragma once

#include <string>

namespace motet {

// The argument itself, or between quotes where a shell would read it otherwise.
std::string shell_quoted(const std::string& argument);

}  // namespace motet
