#include "motet/formats/toml.h"

#include <toml++/toml.h>

#include <cmath>
#include <sstream>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

std::string place(const toml::source_region& source) {
  return text("line ", source.begin.line, ", column ", source.begin.column);
}

// toml++ bounds the depth of its input (TOML_MAX_NESTED_VALUES is 256), so the recursion is bounded too.
json to_json(const toml::node& node, const std::string& where, int depth) {
  if (depth > kJsonDepth) fail(where, ": more than ", kJsonDepth, " levels deep at ", place(node.source()));
  switch (node.type()) {
    case toml::node_type::table: {
      json out = json::object();
      for (const auto& [key, value] : *node.as_table()) out[std::string(key.str())] = to_json(value, where, depth + 1);
      return out;
    }
    case toml::node_type::array: {
      json out = json::array();
      for (const toml::node& value : *node.as_array()) out.push_back(to_json(value, where, depth + 1));
      return out;
    }
    case toml::node_type::string:
      return node.as_string()->get();
    case toml::node_type::integer:
      return node.as_integer()->get();
    case toml::node_type::boolean:
      return node.as_boolean()->get();
    case toml::node_type::floating_point:
      if (std::isfinite(node.as_floating_point()->get())) return node.as_floating_point()->get();
      fail(where, ": a number is not finite at ", place(node.source()));
    default:
      fail(where, ": a date or time is no value of Motet at ", place(node.source()));
  }
}

toml::array array_of(const json& values);

toml::table table_of(const json& object) {
  toml::table out;
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) out.insert(name, table_of(value));
    if (value.is_array()) out.insert(name, array_of(value));
    if (value.is_string()) out.insert(name, value.get<std::string>());
    if (value.is_boolean()) out.insert(name, value.get<bool>());
    if (value.is_number_integer()) out.insert(name, value.get<int64_t>());
    if (value.is_number_float()) out.insert(name, value.get<double>());
  }
  return out;
}

toml::array array_of(const json& values) {
  toml::array out;
  for (const json& value : values) {
    if (value.is_null()) fail("toml_text: TOML has no null, want a value in each array");
    if (value.is_object()) out.push_back(table_of(value));
    if (value.is_array()) out.push_back(array_of(value));
    if (value.is_string()) out.push_back(value.get<std::string>());
    if (value.is_boolean()) out.push_back(value.get<bool>());
    if (value.is_number_integer()) out.push_back(value.get<int64_t>());
    if (value.is_number_float()) out.push_back(value.get<double>());
  }
  return out;
}

}  // namespace

json parse_toml(std::string_view bytes, const std::string& where) {
  try {
    return to_json(toml::parse(bytes), where, 0);
  } catch (const toml::parse_error& error) {
    std::string reason(error.description());
    for (char& character : reason) character = character == '\n' ? ' ' : character;
    fail(where, ": wrong TOML at ", place(error.source()), ": ", reason);
  }
}

json read_toml(const std::string& path) { return parse_toml(read_file(path), path); }

std::string toml_text(const json& object) {
  if (!object.is_object()) fail("toml_text: the value is ", object.type_name(), ", want an object");
  std::ostringstream out;
  out << toml::toml_formatter(table_of(object), toml::format_flags::none) << "\n";
  return out.str();
}

}  // namespace motet
