#include "motet/bench/machine.h"

#include <torch/version.h>

#include <fstream>

namespace motet {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace motet
