// The characters of a pattern, and the sets that are written in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motet/text/regex/program.h"

namespace motet {

// A place in a pattern that moves forward. Complaints are Errors that name the pattern and the place.
class SetReader {
 public:
  // Throws Error when the pattern is no UTF-8. Both must outlive the object.
  SetReader(std::string_view pattern, const std::string& where);

 protected:
  static constexpr int kDeepest = 32;  // groups, and sets inside of sets

  [[noreturn]] void stop(const std::string& what) const;
  bool more() const { return at_ < pattern_.size(); }
  bool is(std::string_view next) const { return pattern_.substr(at_).starts_with(next); }
  bool take(std::string_view next) {
    if (!is(next)) return false;
    at_ += next.size();
    return true;
  }
  char32_t take_character();

  // What stands for one character: a set in brackets, an escape, '.', or the character itself.
  CharacterSet one_set();

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  bool ignore_case_ = false;

 private:
  void literal(std::vector<SetItem>& items, char32_t value) const;
  std::vector<SetItem> property(bool negated);
  char32_t hexadecimal(size_t digits);
  char32_t hexadecimal_escape(char32_t letter);
  std::vector<SetItem> escape();
  void bracket(CharacterSet& set, int depth);
  void member(std::vector<SetItem>& items);
};

}  // namespace motet
