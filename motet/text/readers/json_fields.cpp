#include "motet/text/readers/json_fields.h"

#include "motet/core/error.h"

namespace motet {
namespace {

const nlohmann::json* present(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong(const nlohmann::json& value, const char* name, const char* want, const std::string& where) {
  fail(where, ": ", name, " is ", quote(value.dump().substr(0, 200)), ", want ", want);
}

}  // namespace

bool bool_field(const nlohmann::json& json, const char* name, bool fallback, const std::string& where) {
  const auto* value = present(json, name);
  if (!value) return fallback;
  if (!value->is_boolean()) wrong(*value, name, "true or false", where);
  return value->get<bool>();
}

std::string string_field(const nlohmann::json& json, const char* name, const std::string& fallback,
                         const std::string& where) {
  const auto* value = present(json, name);
  if (!value) return fallback;
  if (!value->is_string()) wrong(*value, name, "a string", where);
  return value->get<std::string>();
}

int64_t integer_field(const nlohmann::json& json, const char* name, int64_t fallback, const std::string& where) {
  const auto* value = present(json, name);
  if (!value) return fallback;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
    wrong(*value, name, "an integer", where);
  return value->get<int64_t>();
}

std::string type_field(const nlohmann::json& json, const std::string& where) {
  const std::string type = string_field(json, "type", "", where);
  if (type.empty()) fail(where, ": has no string 'type'");
  return type;
}

const nlohmann::json& array_field(const nlohmann::json& json, const char* name, const std::string& where) {
  const auto* value = present(json, name);
  if (!value || !value->is_array()) fail(where, ": has no array ", quote(name));
  return *value;
}

void unsupported(const std::string& where, const char* what, const std::string& name,
                 const std::vector<std::string>& known) {
  fail(where, ": the ", what, " ", quote(name), " is not supported; known: ", joined(known));
}

}  // namespace motet
