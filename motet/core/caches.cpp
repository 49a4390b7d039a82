#include "motet/core/caches.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "motet/core/instructions.h"

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
    CacheSizes known = told.l2 ? told : sizes_of_the_system();
    known.slow_l2 = of_intel_with_avx512();
    return known;
  }();
  return sizes;
}

double read_bandwidth(int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  typedef uint64_t Pair __attribute__((vector_size(16)));
  std::vector<Pair> memory(static_cast<size_t>(std::max<int64_t>(bytes / 128, 1)) * 8, Pair{1, 1});
  Pair a{}, b{}, c{}, d{};  // enough chains for two loads a cycle
  const auto read = [&] {
    for (const Pair *p = memory.data(), *end = p + memory.size(); p != end; p += 8)
      a += p[0] ^ p[4], b += p[1] ^ p[5], c += p[2] ^ p[6], d += p[3] ^ p[7];
  };
  read();
  double best = 0;
  for (int round = 0; round < 5; ++round) {  // whatever else runs takes time from some
    const auto begin = Clock::now();
    double seconds = 0;
    int64_t times = 0;
    for (; seconds < 0.002; seconds = std::chrono::duration<double>(Clock::now() - begin).count()) read(), ++times;
    best = std::max(best, static_cast<double>(memory.size() * sizeof(Pair)) * static_cast<double>(times) / seconds);
  }
  const volatile uint64_t used = (a + b + c + d)[0];  // a sum that nobody reads would not be made
  static_cast<void>(used);
  return best;
}

}  // namespace motet
