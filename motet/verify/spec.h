#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

/// A value of a golden file's spec that knows its place in it: every complaint is an Error such as
/// "spec.heads.scores is 'x', want an integer". A view; the JSON must outlive it.
class Spec {
 public:
  Spec(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  const nlohmann::json& value() const { return *value_; }
  bool null() const { return value_->is_null(); }

  /// Whether this is an object with the entry, and the entry is not null.
  bool has(const std::string& key) const;
  /// The entry, which must be there; nothing is implied, so an absent thing is written as null.
  Spec operator[](const std::string& key) const;
  /// Entries of an object, or elements of a list.
  std::vector<std::string> keys() const;
  std::vector<Spec> items() const;

  std::string word() const;
  bool flag() const;
  int64_t integer() const;
  double number() const;
  std::vector<int64_t> integers() const;
  std::vector<std::string> words() const;

  /// Throws "PLACE is VALUE, want WANTED".
  [[noreturn]] void refuse(const std::string& wanted) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace motet
