// What a regular expression is compiled to.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "motet/text/pipeline/unicode.h"

namespace motet {

// One part of a set of characters.
struct SetItem {
  char32_t first = 1, last = 0;  // a range; empty as it stands
  CategorySet categories = 0;
  bool white_space = false, circled = false, numbers_of_latin1 = false;
  bool negated = false;
};

struct CharacterSet {
  std::vector<SetItem> items;
  bool negated = false;
  std::bitset<128> ascii;  // the answer for ASCII; close() fills it

  void close();
  bool contains(char32_t value) const { return value < 128 ? ascii[value] : contains_slowly(value); }
  bool contains_slowly(char32_t value) const;
};

enum class RegexOp : uint8_t {
  set,
  loop,
  split,
  jump,
  ahead,
  behind,
  accept,
  text_begin,
  text_end,
  line_begin,
  line_end
};
enum class RepeatKind : uint8_t { greedy, lazy, possessive };

struct RegexStep {
  RegexOp op;
  bool negated = false;                   // ahead, behind
  RepeatKind kind = RepeatKind::greedy;   // loop
  int set = 0;                            // set, loop, behind
  int x = 0, y = 0;                       // split: first and second choice; jump: x; ahead: y follows its inner accept
  uint32_t least = 0, most = UINT32_MAX;  // loop
  std::bitset<129> x_first = {};          // split: bytes with which x can begin; 128: others
  bool x_any = false;                     // split: x may match nothing
};

struct RegexProgram {
  std::vector<CharacterSet> sets;
  std::vector<RegexStep> steps;
};

// Throws as Regex does.
RegexProgram compile_regex(std::string_view pattern, const std::string& where);

}  // namespace motet
