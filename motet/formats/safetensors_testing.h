#pragma once
#include <filesystem>
#include <string>

#include "motet/core/file.h"

namespace motet::testing {

/// Header and data of a safetensors file, without the spaces by which writers let the data begin at a line.
inline std::string without_padding(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  std::string header = file.substr(8, length);
  header.erase(header.find_last_not_of(' ') + 1);
  return header + file.substr(8 + length);
}

}  // namespace motet::testing
