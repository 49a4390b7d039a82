// Option tables that fill a struct: each row names a member, whose initialiser is the default.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "motet/core/options.h"
#include "motet/core/words.h"

namespace motet {

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

/// The option has an effect where another one has one of these values, or, unless, none of them.
inline Condition where(const char* other, std::vector<nlohmann::json> values) { return {other, std::move(values)}; }
inline Condition unless(const char* other, std::vector<nlohmann::json> values) {
  return {other, std::move(values), true};
}

/// One row: an option, and the member of `Struct` that holds it.
template <class Struct>
class Field {
 public:
  Field(const char* name, int64_t Struct::* member, Range range, const char* sentence, Condition where = {})
      : Field(name, OptionType::integer, member, range, sentence, std::move(where)) {}
  Field(const char* name, double Struct::* member, Range range, const char* sentence, Condition where = {})
      : Field(name, OptionType::number, member, range, sentence, std::move(where)) {}
  Field(const char* name, bool Struct::* member, const char* sentence, Condition where = {})
      : Field(name, OptionType::boolean, member, {}, sentence, std::move(where)) {}
  Field(const char* name, std::string Struct::* member, const char* sentence, Condition where = {})
      : Field(name, OptionType::string, member, {}, sentence, std::move(where)) {}
  /// A choice of words. The value of the struct's initialiser must be among them.
  template <class Value>
    requires(!std::is_arithmetic_v<Value> && !std::is_same_v<Value, std::string>)
  Field(const char* name, Value Struct::* member, const Words<Value>& words, const char* sentence, Condition where = {})
      : option{.name = name, .type = OptionType::string, .sentence = sentence, .where = std::move(where)},
        read([member, words](Struct& out, const nlohmann::json& value) {
          for (const auto& [word, stands_for] : words)
            if (value == word) out.*member = stands_for;
        }),
        write([member, words](const Struct& from) -> nlohmann::json {
          for (const auto& [word, stands_for] : words)
            if (from.*member == stands_for) return word;
          return nullptr;
        }) {
    for (const auto& [word, stands_for] : words) option.choices.push_back(word);
    option.default_value = write(Struct());
  }

  Option option;
  std::function<void(Struct&, const nlohmann::json&)> read;  // of a checked value
  std::function<nlohmann::json(const Struct&)> write;

 private:
  template <class Value>
  Field(const char* name, OptionType type, Value Struct::* member, Range range, const char* sentence, Condition where)
      : option{.name = name,
               .type = type,
               .default_value = Struct().*member,
               .min = range.min,
               .max = range.max,
               .sentence = sentence,
               .where = std::move(where)},
        read([member](Struct& out, const nlohmann::json& value) { out.*member = value.get<Value>(); }),
        write([member](const Struct& from) { return from.*member; }) {}
};

/// A table of options and the struct that holds their values.
template <class Struct>
class Fields {
 public:
  Fields(std::initializer_list<Field<Struct>> rows) : rows_(rows) {
    for (const Field<Struct>& row : rows_) table_.push_back(row.option);
  }

  const OptionTable& table() const { return table_; }
  /// The struct of a resolved section, which may hold keys of other tables too.
  Struct read(const nlohmann::json& resolved) const {
    Struct out;
    for (const Field<Struct>& row : rows_) row.read(out, resolved.at(row.option.name));
    return out;
  }
  /// The resolved section of the struct: read(write(s)) is s.
  nlohmann::json write(const Struct& from) const {
    nlohmann::json out = nlohmann::json::object();
    for (const Field<Struct>& row : rows_) out[row.option.name] = row.write(from);
    return out;
  }
  /// read(resolve(table(), given, section)).
  Struct parse(const nlohmann::json& given, const std::string& section) const {
    return read(resolve(table_, given, section));
  }

 private:
  std::vector<Field<Struct>> rows_;
  OptionTable table_;
};

}  // namespace motet
