#pragma once
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace motet::testing {

/// The file in whose mapping an address lies; "" in none's.
inline std::string file_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string rights, offset, device, inode, path;
    words >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> inode >> path;
    if (at >= begin && at < end) return path;
  }
  return "";
}

}  // namespace motet::testing
