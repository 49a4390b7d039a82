#include "motet/mechanisms/contender.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/mechanisms/mechanism.h"

namespace motet {
namespace {

// A mechanism without a preset of its name is one.
std::vector<Preset> all_presets() {
  std::vector<Preset> presets;
  for (const MechanismEntry& entry : mechanism_registry()) {
    presets.insert(presets.end(), entry.presets.begin(), entry.presets.end());
    bool named = false;
    for (const Preset& p : entry.presets) named |= p.name == entry.name;
    if (!named) presets.push_back({entry.name, false, {{"mechanism", entry.name}}});
  }
  return presets;
}

}  // namespace

std::vector<std::string> contender_names() {
  std::vector<std::string> names;
  for (const Preset& p : all_presets()) names.push_back(p.name);
  return names;
}

std::vector<std::string> compared_names() {
  std::vector<std::string> names;
  for (const Preset& p : all_presets())
    if (p.compared) names.push_back(p.name);
  return names;
}

nlohmann::json parse_contender(const std::string& contender, const std::string& where) {
  size_t colon = contender.find(':');
  const std::string name = contender.substr(0, colon);
  nlohmann::json attention;
  for (const Preset& p : all_presets())
    if (p.name == name) attention = p.attention;
  if (attention.is_null()) fail_usage(where, ": ", unknown_name("mechanism", name, contender_names()));
  std::vector<std::string> given;
  while (colon != std::string::npos) {
    const size_t next = contender.find(':', colon + 1);
    const std::string option = contender.substr(colon + 1, next - colon - 1), key = option.substr(0, option.find('='));
    if (key.size() == option.size())
      fail_usage(where, ": '", option, "' in '", contender, "' is no option, want key=value");
    if (key == "mechanism")
      fail_usage(where, ": '", option, "' in '", contender, "': the mechanism stands before the first colon");
    if (std::ranges::find(given, key) != given.end())
      fail_usage(where, ": '", key, "' stands twice in '", contender, "', want it once");
    given.push_back(key);
    attention[key] = option.substr(key.size() + 1);
    colon = next;
  }
  return attention;
}

}  // namespace motet
