#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace motet {

/// Bytes of a core's first and second level of data cache, and of the last one, which cores share; 0: none, or the
/// system does not tell.
struct CacheSizes {
  int64_t l1 = 0, l2 = 0, l3 = 0;
  /// Whether a core multiplies faster than its L2 feeds products of few rows; set by cache_sizes() alone, on Intel's
  /// CPUs with AVX-512, of which one was measured (docs/kernels.md).
  bool slow_l2 = false;
};

/// What the system says of the first processor's caches; `folder` is Linux's, for tests.
CacheSizes read_cache_sizes(const std::filesystem::path& folder = "/sys/devices/system/cpu/cpu0/cache");

/// The same with what is known of the maker's L2, read once: it does not change while a process runs.
const CacheSizes& cache_sizes();

/// Bytes a second that one thread reads from `bytes` that it has just read, for people to look at: it chooses nothing.
double read_bandwidth(int64_t bytes);

}  // namespace motet
