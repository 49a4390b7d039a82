// Runs a fuzz target over its saved corpus without libFuzzer: each file, each of its beginnings, and changed copies
// that are the same in every run.
//
// usage: replay_NAME CORPUS_FOLDER...
#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "fuzz/target.h"
#include "motet/core/file.h"

namespace {

constexpr int kChanged = 2000;            // copies of each file
constexpr size_t kEveryBeginning = 8192;  // longer files are not cut at every byte

void run(const std::string& bytes) {
  // A copy of exactly this size, so that the address sanitizer sees every byte beyond.
  const std::vector<uint8_t> own(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(own.data(), own.size());
}

std::string changed(std::string bytes, const std::vector<std::string>& all, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % std::max<size_t>(n, 1)); };
  for (size_t count = 1 + below(4); count > 0 && !bytes.empty(); --count) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:  // numbers that are too large
        for (size_t i = at; i < std::min(bytes.size(), at + 8); ++i) bytes[i] = below(4) ? '\xFF' : '\x7F';
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32)));
        break;
      default: {
        const std::string& other = all[below(all.size())];
        bytes = bytes.substr(0, at) + other.substr(below(other.size()));
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> all;
  for (int i = 1; i < count; ++i) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(arguments[i])) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) all.push_back(motet::read_file(path));
  }
  if (all.empty()) {
    std::cerr << "usage: replay_NAME CORPUS_FOLDER..." << std::endl;
    return 2;
  }
  std::mt19937_64 random(1);
  size_t inputs = 0;
  for (const std::string& bytes : all) {
    run(bytes);
    for (size_t size = 0; size < std::min(bytes.size(), kEveryBeginning); ++size) run(bytes.substr(0, size));
    for (int i = 0; i < kChanged; ++i) run(changed(bytes, all, random));
    inputs += 1 + std::min(bytes.size(), kEveryBeginning) + kChanged;
  }
  std::cout << inputs << " inputs from " << all.size() << " files" << std::endl;
  return 0;
}
