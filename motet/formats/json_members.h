// JSON with one object that is too large for a tree.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

// A member of the object, in the order of the file; whether a name comes twice is not checked.
using TakeJsonMember = std::function<void(std::string&& name, nlohmann::json&& value)>;

// parse_json, with the object at `path` (names from the top) left empty and its members given to `take`. Throws as
// parse_json does.
nlohmann::json parse_json_members(std::string_view bytes, const std::string& where,
                                  const std::vector<std::string>& path, const TakeJsonMember& take);

}  // namespace motet
