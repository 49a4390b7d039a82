#include "motet/core/process.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace motet {
namespace {

// The figure of a line such as "VmHWM:   1234 kB" of a file of /proc, in bytes.
int64_t status_bytes(const std::string& key, const char* file = "/proc/self/status") {
  std::ifstream status(file);
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS:"); }

int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

int64_t available_bytes() { return status_bytes("MemAvailable:", "/proc/meminfo"); }

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

void return_freed_memory() { ::malloc_trim(0); }

int processor_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace motet
