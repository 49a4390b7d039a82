#include "motet/core/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <map>

#include "motet/core/error.h"

namespace motet {

const std::vector<std::string>& environment_names() {
  static const std::vector<std::string> names = {"MOTET_TORCH_DIR", "MOTET_TORCH_BUILD", "MOTET_CUDA_ARCHITECTURES",
                                                 "MOTET_KERNEL",    "MOTET_THREADS",     "MOTET_LOG",
                                                 "MOTET_API_KEY"};
  return names;
}

const std::string* environment(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> values = [] {
    std::map<std::string, std::string, std::less<>> found;
    for (const std::string& known : environment_names()) {
      const char* value = std::getenv(known.c_str());
      found[known] = value ? value : "";
    }
    return found;
  }();
  const auto found = values.find(name);
  if (found == values.end()) throw Error(unknown_name("environment variable", name, environment_names()));
  return found->second.empty() ? nullptr : &found->second;
}

std::vector<std::string> environment_warnings() {
  std::vector<std::string> warnings;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view line = *entry;
    if (!line.starts_with("MOTET_")) continue;
    const std::string_view name = line.substr(0, line.find('='));
    bool known = false;
    for (const std::string& candidate : environment_names()) known |= candidate == name;
    if (!known) warnings.push_back(unknown_name("environment variable", name, environment_names()));
  }
  return warnings;
}

}  // namespace motet
