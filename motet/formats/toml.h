// TOML files as JSON values and back; the only place that knows toml++.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace motet {

// Throws Error in one line that begins with `where`: wrong syntax (with line and column), dates and times, numbers that
// are not finite, more than 64 levels.
nlohmann::json parse_toml(std::string_view bytes, const std::string& where);

// parse_toml of a whole file of at most 16 MiB.
nlohmann::json read_toml(const std::string& path);

// An object as TOML text that parse_toml turns into the same value. Names come in alphabetic order, plain values before
// sections, numbers with as few digits as read back the same. Throws Error for null inside arrays, a number that is not
// finite or a value that is no object; a null member is left out.
std::string toml_text(const nlohmann::json& object);

}  // namespace motet
