// Members of the objects in tokenizer.json, with errors that name them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

// json[name] as T (bool, std::string, int64_t); `fallback` when it is missing or null.
bool bool_field(const nlohmann::json& json, const char* name, bool fallback, const std::string& where);
std::string string_field(const nlohmann::json& json, const char* name, const std::string& fallback,
                         const std::string& where);
int64_t integer_field(const nlohmann::json& json, const char* name, int64_t fallback, const std::string& where);

// json["type"]. Throws Error when json is no object with one.
std::string type_field(const nlohmann::json& json, const std::string& where);

// json[name], which must be an array.
const nlohmann::json& array_field(const nlohmann::json& json, const char* name, const std::string& where);

// "FILE: the normalizer 'Nmt' is not supported; known: NFC, NFD"
[[noreturn]] void unsupported(const std::string& where, const char* what, const std::string& name,
                              const std::vector<std::string>& known);

}  // namespace motet
