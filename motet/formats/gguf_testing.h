// Help for unit tests: the bytes of a GGUF file's metadata.
#pragma once

#include <string>

#include "motet/formats/gguf.h"

namespace motet::testing {

template <class Number>
std::string raw(Number value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string word(const std::string& s) { return raw<uint64_t>(s.size()) + s; }

inline std::string entry(const std::string& key, GgufType type, const std::string& value) {
  return word(key) + raw(static_cast<uint32_t>(type)) + value;
}

}  // namespace motet::testing
