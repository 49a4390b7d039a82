#pragma once

#include <string>
#include <utility>
#include <vector>

#include "motet/core/error.h"

namespace motet {

/// The words of a choice, and the value that each stands for.
template <class Value>
using Words = std::vector<std::pair<std::string, Value>>;

/// The word of a value; "" if it has none.
template <class Value>
const char* word_of(const Words<Value>& words, const Value& value) {
  for (const auto& [word, stands_for] : words)
    if (stands_for == value) return word.c_str();
  return "";
}

/// What a word stands for. Throws UsageError "unknown WHAT 'word': ..." for others.
template <class Value>
Value value_of(const Words<Value>& words, const std::string& word, const std::string& what) {
  std::vector<std::string> known;
  for (const auto& [own, stands_for] : words) {
    if (own == word) return stands_for;
    known.push_back(own);
  }
  throw UsageError(unknown_name(what, word, known));
}

/// The parts between `by`; one, empty, of an empty text.
inline std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts{""};
  for (const char c : text) c == by ? (void)parts.emplace_back() : parts.back().push_back(c);
  return parts;
}

/// Of a message that may have several lines.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace motet
