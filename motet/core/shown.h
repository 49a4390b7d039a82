// Values of JSON in messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace motet {

// A string as quote() has it, the rest as JSON in one line, of which about 80 bytes are shown, whole characters.
std::string shown(const nlohmann::json& value);

}  // namespace motet
