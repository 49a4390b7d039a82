#include "motet/core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "motet/core/error.h"
#include "motet/core/shown.h"

namespace motet {
namespace {

using nlohmann::json;

// The whole of `word` as a number, or NaN.
double parse_number(const std::string& word) {
  double number = 0;
  const char* begin = word.data() + (word.starts_with('+') && !word.starts_with("+-") ? 1 : 0);
  const char* end = word.data() + word.size();
  const auto result = std::from_chars(begin, end, number);
  return result.ec == std::errc() && result.ptr == end ? number : std::nan("");
}

std::string number_text(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

// An end of an option's range. 2^63, which is a double, stands for the largest integer, which is none.
std::string limit_text(const Option& option, double limit) {
  const bool largest = option.type == OptionType::integer && limit >= 0x1p63;
  return largest ? std::to_string(std::numeric_limits<int64_t>::max()) : number_text(limit);
}

json checked_boolean(const json& value, const std::string& path) {
  if (value.is_boolean()) return value;
  if (value == "true") return true;
  if (value == "false") return false;
  fail_usage(path, ": ", shown(value), " is not a boolean, want true or false");
}

// The integer of 64 bits that JSON or a word names, digit for digit.
std::optional<int64_t> exact_integer(const json& value) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value.is_number_unsigned() && value.get<uint64_t>() > kMost) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& word = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  if (result.ec == std::errc() && result.ptr == word.data() + word.size()) return number;
  return std::nullopt;
}

json checked_number(const Option& option, const json& value, const std::string& path) {
  const bool integer = option.type == OptionType::integer;
  const double number = value.is_number()   ? value.get<double>()
                        : value.is_string() ? parse_number(value.get<std::string>())
                                            : std::nan("");
  if (!std::isfinite(number) || (integer && number != std::floor(number))) {
    fail_usage(path, ": ", shown(value), integer ? " is not an integer" : " is not a number", ", want ",
               accepted(option));
  }
  // Beyond 2^53 a double no longer names one integer: so far goes an option of no range, and 1e17.
  constexpr double kLargestInteger = 0x1p53;
  const std::optional<int64_t> exact = integer ? exact_integer(value) : std::nullopt;
  double min = option.min, max = option.max;
  if (integer && !std::isfinite(min)) min = -kLargestInteger;
  if (integer && !std::isfinite(max)) max = kLargestInteger;
  const bool above = number > max || (integer && !exact && number >= 0x1p63);
  if (number < min) fail_usage(path, ": ", shown(value), " is below ", limit_text(option, min));
  if (above) fail_usage(path, ": ", shown(value), " is above ", limit_text(option, max));
  if (integer && !exact && std::abs(number) > kLargestInteger)
    fail_usage(path, ": ", shown(value), " is rounded, want ", accepted(option), ", by its digits");
  if (integer) return exact.value_or(static_cast<int64_t>(number));
  return number;
}

json checked_string(const Option& option, const json& value, const std::string& path) {
  if (!value.is_string()) fail_usage(path, ": ", shown(value), " is not a string, want ", accepted(option));
  if (option.choices.empty()) return value;
  for (const std::string& choice : option.choices) {
    if (value == choice) return value;
  }
  const std::string nearest = nearest_name(value.get<std::string>(), option.choices);
  fail_usage(path, ": ", shown(value), " is not known, want ", accepted(option),
             nearest.empty() ? "" : "; nearest is '" + nearest + "'");
}

std::string dotted(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

}  // namespace

json defaults(const OptionTable& table) {
  json out = json::object();
  for (const Option& option : table) out[option.name] = option.default_value;
  return out;
}

json checked(const Option& option, const json& value, const std::string& path) {
  switch (option.type) {
    case OptionType::boolean:
      return checked_boolean(value, path);
    case OptionType::integer:
    case OptionType::number:
      return checked_number(option, value, path);
    case OptionType::string:
      break;
  }
  return checked_string(option, value, path);
}

const Option& find_option(const OptionTable& table, const std::string& name, const std::string& path) {
  std::vector<std::string> known;
  for (const Option& option : table) {
    if (option.name == name) return option;
    known.push_back(dotted(path, option.name));
  }
  throw UsageError(unknown_name("key", dotted(path, name), known));
}

json resolve(const OptionTable& table, const json& given, const std::string& section) {
  if (!given.is_object() && !given.is_null()) fail_usage(section, ": ", shown(given), " is not a section of keys");
  json out = defaults(table);
  for (const auto& [name, value] : given.items()) {
    out[name] = checked(find_option(table, name, section), value, dotted(section, name));
  }
  for (const Option& option : table) {
    if (out[option.name].is_null()) {
      fail_usage(dotted(section, option.name), ": is missing, want ", accepted(option));
    }
  }
  for (const Option& option : table)
    if (out[option.name] != option.default_value && !has_effect(option, out))
      fail_usage(dotted(section, option.name), ": ", shown(out[option.name]), " has no effect, want ",
                 words(option.where));
  return out;
}

const char* type_name(OptionType type) {
  switch (type) {
    case OptionType::boolean:
      return "boolean";
    case OptionType::integer:
      return "integer";
    case OptionType::number:
      return "number";
    case OptionType::string:
      break;
  }
  return "string";
}

bool has_effect(const Option& option, const json& all) {
  const Condition& where = option.where;
  if (where.option.empty()) return true;
  const bool found = std::ranges::find(where.values, all.at(where.option)) != where.values.end();
  return found != where.unless;
}

void reset_idle(const OptionTable& table, json& all) {
  for (const Option& option : table)
    if (!has_effect(option, all)) all[option.name] = option.default_value;
}

std::string words(const Condition& condition) {
  std::string values;
  for (const json& value : condition.values)
    values += (values.empty() ? "" : " or ") + (value.is_string() ? value.get<std::string>() : value.dump());
  return condition.option.empty() ? "" : condition.option + (condition.unless ? " other than " : " = ") + values;
}

std::string accepted(const Option& option) {
  if (!option.choices.empty()) {
    return (option.choices.size() == 1 ? "" : "one of ") + joined(option.choices);
  }
  if (option.type == OptionType::boolean) return "true or false";
  const std::string type = type_name(option.type);
  if (option.type == OptionType::string) return type;  // a range is of numbers
  const bool low = std::isfinite(option.min), high = std::isfinite(option.max);
  if (low && high) return type + ", " + number_text(option.min) + " to " + limit_text(option, option.max);
  if (low) return type + ", at least " + number_text(option.min);
  if (high) return type + ", at most " + limit_text(option, option.max);
  return type;
}

}  // namespace motet
