#include "motet/verify/spec.h"

#include "motet/core/error.h"

namespace motet {

void Spec::refuse(const std::string& wanted) const {
  const std::string shown = value_->is_string() ? value_->get<std::string>() : value_->dump();
  fail(place_, " is ", quote(shown), ", want ", wanted);
}

bool Spec::has(const std::string& key) const {
  return value_->is_object() && value_->contains(key) && !value_->at(key).is_null();
}

Spec Spec::operator[](const std::string& key) const {
  if (!value_->is_object()) refuse("an object with '" + key + "'");
  if (!value_->contains(key)) fail(place_, ".", key, " is missing");
  return {value_->at(key), place_ + "." + key};
}

std::vector<std::string> Spec::keys() const {
  if (!value_->is_object()) refuse("an object");
  std::vector<std::string> names;
  for (const auto& [name, ignored] : value_->items()) names.push_back(name);
  return names;
}

std::vector<Spec> Spec::items() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<Spec> all;
  for (size_t i = 0; i < value_->size(); ++i) all.push_back({(*value_)[i], text(place_, "[", i, "]")});
  return all;
}

std::string Spec::word() const {
  if (!value_->is_string()) refuse("a word");
  return value_->get<std::string>();
}

bool Spec::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int64_t Spec::integer() const {
  if (!value_->is_number_integer()) refuse("an integer");
  return value_->get<int64_t>();
}

double Spec::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

std::vector<int64_t> Spec::integers() const {
  std::vector<int64_t> all;
  for (const Spec& item : items()) all.push_back(item.integer());
  return all;
}

std::vector<std::string> Spec::words() const {
  std::vector<std::string> all;
  for (const Spec& item : items()) all.push_back(item.word());
  return all;
}

}  // namespace motet
