#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "motet/core/error.h"

namespace motet {

/// A table of experiment.toml, whose keys are asked for one by one; what nobody asked for is refused. Throws Error in
/// one line that begins with `place`.
class Section {
 public:
  Section(const nlohmann::json& values, std::string place) : values_(values), place_(std::move(place)) {
    if (!values.is_object()) fail(place_, ": want a table");
  }

  std::string string(const char* key, const char* otherwise = nullptr) {
    const nlohmann::json* found = find(key);
    if (!found && otherwise) return otherwise;
    if (!found || !found->is_string()) fail(place_, ": want a string ", quote(key));
    return *found;
  }
  double number(const char* key, double otherwise) {
    const nlohmann::json* found = find(key);
    if (!found) return otherwise;
    if (!found->is_number()) fail(place_, ": ", key, " is no number");
    return *found;
  }
  std::vector<std::string> strings(const char* key) {
    std::vector<std::string> out;
    for (const nlohmann::json& one : list(key)) {
      if (!one.is_string()) fail(place_, ": ", key, ": want a list of strings");
      out.push_back(one);
    }
    return out;
  }
  std::vector<double> numbers(const char* key) {
    std::vector<double> out;
    for (const nlohmann::json& one : list(key)) {
      if (!one.is_number()) fail(place_, ": ", key, ": want a list of numbers");
      out.push_back(one);
    }
    return out;
  }
  nlohmann::json list(const char* key) {
    const nlohmann::json* found = find(key);
    if (!found) return nlohmann::json::array();
    if (!found->is_array()) fail(place_, ": ", key, ": want a list");
    return *found;
  }
  nlohmann::json object(const char* key) {
    const nlohmann::json* found = find(key);
    if (!found) return nlohmann::json::object();
    if (!found->is_object()) fail(place_, ": ", key, ": want a table");
    return *found;
  }
  bool has(const char* key) const { return values_.contains(key); }

  /// What nobody asked for.
  nlohmann::json rest() const {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [key, value] : values_.items())
      if (std::ranges::find(known_, key) == known_.end()) out[key] = value;
    return out;
  }
  void finish() const {
    const nlohmann::json unknown = rest();
    for (const auto& [key, value] : unknown.items()) fail(place_, ": ", unknown_name("key", key, known_));
  }
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json* find(const char* key) {
    known_.emplace_back(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &*found;
  }

  const nlohmann::json& values_;
  std::string place_;
  std::vector<std::string> known_;
};

}  // namespace motet
