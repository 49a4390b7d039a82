#include "motet/bench/machine.h"

#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace motet {

namespace fs = std::filesystem;

namespace {

// What stands behind the colon of the first line that begins with the key.
std::string value_in(const fs::path& path, const char* key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (line.starts_with(key) && begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

}  // namespace

std::string processor_name(const fs::path& facts) {
  const std::string family = value_in(facts, "cpu family"), model = value_in(facts, "model");
  const std::string name = value_in(facts, "model name");
  return family == "unknown" ? name : name + " (family " + family + ", model " + model + ")";
}

std::string cpu_kind(const std::vector<std::string>& instructions) {
  const auto has = [&](const char* name) { return std::ranges::find(instructions, name) != instructions.end(); };
  return has("amx-bf16") ? kAmx : has("avx512f") ? kAvx512 : "other";
}

std::string gpu_name(const fs::path& driver) {
  std::set<fs::path> all;  // by their place on the bus
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(driver / "gpus", none)) all.insert(entry.path());
  return all.empty() ? "unknown" : value_in(*all.begin() / "information", "Model");
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace motet
