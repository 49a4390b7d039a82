// JSON (RFC 8259) from sources that are not trusted.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace motet {

inline constexpr int kJsonDepth = 64;
inline constexpr size_t kJsonBytes = 100'000'000;

// The one value that `bytes` holds. Throws Error in one line that begins with `where` (a file's name): more than
// `max_bytes`, no UTF-8, wrong syntax (with line and column), arrays and objects more than `max_depth` deep, a name
// twice in one object, a number outside of double. Never recurses on the input.
nlohmann::json parse_json(std::string_view bytes, const std::string& where, size_t max_bytes = kJsonBytes,
                          size_t max_depth = kJsonDepth);

// parse_json of a whole file.
nlohmann::json read_json(const std::string& path, size_t max_bytes = kJsonBytes);

}  // namespace motet
