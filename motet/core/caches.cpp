#include "motet/core/caches.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <unistd.h>
#endif

namespace motet {
namespace {

namespace fs = std::filesystem;

std::string word_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "48K", "2M" or a plain number; 0 for anything else.
int64_t bytes_of(const std::string& size) {
  int64_t bytes = 0;
  size_t i = 0;
  for (; i < size.size() && i < 12 && size[i] >= '0' && size[i] <= '9'; ++i) bytes = bytes * 10 + (size[i] - '0');
  const std::string unit = size.substr(i);
  return unit == "K" ? bytes << 10 : unit == "M" ? bytes << 20 : unit.empty() ? bytes : 0;
}

// What another source than Linux's folder says: containers may hide that, and macOS has none.
CacheSizes sizes_of_the_system() {
#if defined(__APPLE__)
  const auto size = [](const char* name) {
    int64_t bytes = 0;
    size_t length = sizeof bytes;
    return sysctlbyname(name, &bytes, &length, nullptr, 0) == 0 ? bytes : int64_t{0};
  };
  return {size("hw.l1dcachesize"), size("hw.l2cachesize"), size("hw.l3cachesize")};
#elif defined(_SC_LEVEL2_CACHE_SIZE)
  const auto size = [](int name) { return std::max<int64_t>(sysconf(name), 0); };
  return {size(_SC_LEVEL1_DCACHE_SIZE), size(_SC_LEVEL2_CACHE_SIZE), size(_SC_LEVEL3_CACHE_SIZE)};
#else
  return {};
#endif
}

}  // namespace

CacheSizes read_cache_sizes(const fs::path& folder) {
  CacheSizes found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string type = word_in(entry.path() / "type"), level = word_in(entry.path() / "level");
    if (type != "Data" && type != "Unified") continue;
    const int64_t bytes = bytes_of(word_in(entry.path() / "size"));
    if (level == "1") found.l1 = bytes;
    if (level == "2") found.l2 = bytes;
    if (level == "3") found.l3 = bytes;
  }
  return found;
}

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = [] {
    const CacheSizes told = read_cache_sizes();
    return told.l2 ? told : sizes_of_the_system();
  }();
  return sizes;
}

double read_bandwidth(int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  typedef uint64_t Line __attribute__((vector_size(64)));
  std::vector<Line> memory(static_cast<size_t>(std::max<int64_t>(bytes / 64, 4)) / 4 * 4, Line{} + 1);
  Line sum[4] = {};
  const auto read = [&] {
    for (size_t i = 0; i < memory.size(); i += 4)
      for (size_t k = 0; k < 4; ++k) sum[k] += memory[i + k];
  };
  read();
  const auto begin = Clock::now();
  double seconds = 0;
  int64_t times = 0;
  while (seconds < 0.01) {
    read(), ++times;
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const Line all = sum[0] + sum[1] + sum[2] + sum[3];
  const volatile uint64_t used = all[0];  // a sum that nobody reads would not be made
  static_cast<void>(used);
  return static_cast<double>(memory.size() * sizeof(Line)) * static_cast<double>(times) / seconds;
}

}  // namespace motet
