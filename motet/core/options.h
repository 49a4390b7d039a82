// Option tables: the one place where an option's name, type, default, range and sentence are written down.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

// Where an option has an effect: another one of its table has one of these values, or, `unless`, none of them.
struct Condition {
  std::string option = {};  // empty: everywhere
  std::vector<nlohmann::json> values = {};
  bool unless = false;
};

enum class OptionType { boolean, integer, number, string };

struct Option {
  std::string name;
  OptionType type;
  nlohmann::json default_value;  // of `type`; null: must be given
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of a string; empty: any
  std::string sentence = {};              // for --help, --options and the documentation
  Condition where = {};
};

using OptionTable = std::vector<Option>;

// Name -> default of the whole table.
nlohmann::json defaults(const OptionTable& table);

// `value` as the option's type, inside its range and choices. A string given for another type is parsed ("3e-4",
// "true"), as `--set` needs; a number is an integer when it is whole. Infinities and NaN are refused.
// Throws UsageError that begins with `path`, such as "model.hidden_size: -3 is below 1".
nlohmann::json checked(const Option& option, const nlohmann::json& value, const std::string& path);

// The option called `name`. `path` is the table's section, such as "model.attention" (empty: the top).
// Throws UsageError with the nearest name.
const Option& find_option(const OptionTable& table, const std::string& name, const std::string& path);

// Every key of the table: from `given` (an object or null), checked, else its default. Throws UsageError for an unknown
// key, a wrong value, one that has no effect and is not the default, a missing one without default, or a `given` that
// is no object.
nlohmann::json resolve(const OptionTable& table, const nlohmann::json& given, const std::string& section);

// "integer", "number", "boolean", "string".
const char* type_name(OptionType type);

// Whether an option changes anything beside these values.
bool has_effect(const Option& option, const nlohmann::json& all);

// Values without effect beside the others become defaults; `all` has every key of the table.
void reset_idle(const OptionTable& table, nlohmann::json& all);

// "version = v1", "window other than 0", "rope_scaling = dynamic or llama3"; "" of one that holds everywhere.
std::string words(const Condition& condition);

// What the option accepts, in words: "integer, at least 1", "number, 0 to 1", "one of sequential, parallel".
std::string accepted(const Option& option);

}  // namespace motet
