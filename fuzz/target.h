// A fuzz target: bytes that are not trusted go to one reader, which takes them or throws Error in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>

#include "motet/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace motet {

template <class Read>
int fuzzed(const uint8_t* data, size_t size, Read read) {
  try {
    read(std::as_bytes(std::span(data, size)));
  } catch (const Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      std::cerr << "a message of several lines: " << error.what() << std::endl;
      std::abort();
    }
  }
  return 0;
}

// Touches every byte, so that a view outside of the file is found.
inline void touch(std::span<const std::byte> bytes) {
  [[maybe_unused]] static volatile unsigned sum;
  unsigned own = 0;
  for (const std::byte b : bytes) own += std::to_integer<unsigned>(b);
  sum = own;
}

}  // namespace motet
