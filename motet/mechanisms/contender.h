#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

/// The names by which every command knows a mechanism: presets ("mha", "differential_v2") and mechanisms.
std::vector<std::string> contender_names();
/// Those of the default comparison.
std::vector<std::string> compared_names();

/// A name with options behind colons, "dcmha:rank=1:sides=query", as a [model.attention] section: what the name stands
/// for, and the options as they were written. Throws UsageError that begins with `where`, with the nearest name.
nlohmann::json parse_contender(const std::string& contender, const std::string& where);

}  // namespace motet
