#include "motet/formats/toml.h"

#include <toml++/toml.h>

#include <cmath>

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

// A name or string in quotes: JSON's escapes are TOML's too, which wants one for DEL besides.
std::string quoted(const std::string& word) {
  std::string out;
  for (const char c : json(word).dump(-1, ' ', false, json::error_handler_t::replace))
    out += c == '\x7F' ? "\\u007F" : std::string(1, c);
  return out;
}

std::string name_text(const std::string& name) {
  const char* bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.find_first_not_of(bare) == std::string::npos ? name : quoted(name);
}

// A value in one line. JSON's numbers are TOML's too: the fewest digits that read back as the same number.
std::string value_text(const json& value) {
  if (value.is_null()) fail("toml_text: TOML has no null, want a value in each array");
  if (value.is_number_float() && !std::isfinite(value.get<double>())) fail("toml_text: a number is not finite");
  if (value.is_string()) return quoted(value.get<std::string>());
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [name, member] : value.items()) {
    if (value.is_object() && member.is_null()) continue;
    out += (out.empty() ? "" : ", ") + (value.is_object() ? name_text(name) + " = " : "") + value_text(member);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

// Plain members first: what follows [section] belongs to the section.
void write_members(const json& object, const std::string& section, std::string& out) {
  for (const auto& [name, value] : object.items())
    if (!value.is_object() && !value.is_null()) out += name_text(name) + " = " + value_text(value) + "\n";
  for (const auto& [name, value] : object.items()) {
    if (!value.is_object()) continue;
    const std::string path = section.empty() ? name_text(name) : section + "." + name_text(name);
    out += (out.empty() ? "[" : "\n[") + path + "]\n";
    write_members(value, path, out);
  }
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

constexpr size_t kTomlBytes = size_t{1} << 24;

json read_toml(const std::string& path) { return parse_toml(read_file(path, kTomlBytes), path); }

std::string toml_text(const json& object) {
  if (!object.is_object()) fail("toml_text: the value is ", object.type_name(), ", want an object");
  std::string out;
  write_members(object, "", out);
  return out;
}

}  // namespace motet
