#include "motet/bench/shape.h"

#include "motet/core/error.h"

namespace motet {
namespace {

const Option& option_of(const OptionTable& table, const std::string& key) {
  std::vector<std::string> known;
  for (const Option& option : table) {
    if (option.name == key) return option;
    known.push_back(option.name);
  }
  throw UsageError("--shape: " + unknown_name("key", key, known));
}

}  // namespace

nlohmann::json parse_shape(const std::string& given, const OptionTable& table) {
  nlohmann::json named = nlohmann::json::object();
  for (size_t begin = 0; begin < given.size() || begin != 0;) {
    const size_t end = std::min(given.find(',', begin), given.size());
    const std::string part = given.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_usage("--shape: ", quote(part), " is no size, want KEY=VALUE such as ", table.front().name, "=",
                 table.front().default_value.dump());
    const Option& option = option_of(table, part.substr(0, equals));
    if (named.contains(option.name)) fail_usage("--shape: ", option.name, " is given twice");
    named[option.name] = checked(option, part.substr(equals + 1), "--shape: " + option.name);
    if (end == given.size()) break;
    begin = end + 1;
  }
  nlohmann::json shape = defaults(table);
  shape.update(named);
  return shape;
}

}  // namespace motet
