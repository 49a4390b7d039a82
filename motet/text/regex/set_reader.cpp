#include "motet/text/regex/set_reader.h"

#include <utf8proc.h>

#include <cctype>

#include "motet/core/error.h"
#include "motet/core/utf8.h"

namespace motet {
namespace {

SetItem character(char32_t value) { return {.first = value, .last = value}; }

// Numbers that Oniguruma's \w has, and its [\w] has not.
bool is_number_of_latin1(char32_t value) {
  constexpr std::u32string_view kAll = U"\u00B2\u00B3\u00B9\u00BC\u00BD\u00BE";
  return kAll.find(value) != kAll.npos;
}

// The simple case variants of a character.
void add_cases(std::vector<SetItem>& items, char32_t value) {
  const auto point = static_cast<utf8proc_int32_t>(value);
  items.push_back(character(static_cast<char32_t>(utf8proc_tolower(point))));
  items.push_back(character(static_cast<char32_t>(utf8proc_toupper(point))));
  if (value == 's' || value == 'S') items.push_back(character(0x17F));
  if (value == 'k' || value == 'K') items.push_back(character(0x212A));
}

}  // namespace

SetReader::SetReader(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {
  if (utf8_invalid_at(pattern) != std::string_view::npos) stop("is no UTF-8");
}

void SetReader::stop(const std::string& what) const {
  fail(where_, ": the pattern ", quote(pattern_), " ", what, " (at byte ", at_, ")");
}

char32_t SetReader::take_character() {
  if (!more()) stop("ends too early");
  const CodePoint c = code_point(pattern_, at_);
  at_ += c.size;
  return c.value;
}

CharacterSet SetReader::one_set() {
  CharacterSet set;
  if (take("[")) {
    bracket(set, 0);
  } else if (take(".")) {
    set = {.items = {character('\n')}, .negated = true};
  } else if (take("\\")) {
    set.items = escape();
    set.items[0].numbers_of_latin1 = set.items[0].categories == kWords;
  } else {
    literal(set.items, take_character());
  }
  return set;
}

void SetReader::literal(std::vector<SetItem>& items, char32_t value) const {
  items.push_back(character(value));
  if (ignore_case_) add_cases(items, value);
}

std::vector<SetItem> SetReader::property(bool negated) {
  if (!take("{")) stop("has \\p without {");
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos) stop("has \\p{ without }");
  std::string_view name = pattern_.substr(at_, end - at_);
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  SetItem item{.negated = negated};
  if (name == "White_Space" || name == "Space") {
    item.white_space = true;
  } else if (name == "Han" || (item.categories = category_named(name)) == 0) {
    stop("has an unsupported property " + quote(name));
  }
  at_ = end + 1;
  return {item};
}

char32_t SetReader::hexadecimal(size_t digits) {
  char32_t value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const char32_t c = take_character();
    if (!(c < 128 && std::isxdigit(static_cast<int>(c)))) stop("has a wrong hexadecimal digit");
    value = value * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    if (value > 0x10FFFF) stop("has a character above U+10FFFF");
  }
  return value;
}

char32_t SetReader::hexadecimal_escape(char32_t letter) {
  if (!take("{")) return hexadecimal(letter == 'u' ? 4 : 2);
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos || end == at_) stop("has a wrong escape");
  const char32_t value = hexadecimal(end - at_);
  take("}");
  return value;
}

// What follows a backslash.
std::vector<SetItem> SetReader::escape() {
  const char32_t c = take_character();
  switch (c) {
    case 's':
      return {{.white_space = true}};
    case 'S':
      return {{.white_space = true, .negated = true}};
    case 'd':
      return {{.categories = kDigits}};
    case 'D':
      return {{.categories = kDigits, .negated = true}};
    case 'w':
      return {{.categories = kWords, .circled = true}};
    case 'W':
      return {{.categories = kWords, .circled = true, .negated = true}};
    case 'p':
      return property(false);
    case 'P':
      return property(true);
    case 'n':
      return {character('\n')};
    case 'r':
      return {character('\r')};
    case 't':
      return {character('\t')};
    case 'f':
      return {character('\f')};
    case 'v':
      return {character('\v')};
    case 'x':
    case 'u':
      return {character(hexadecimal_escape(c))};
    default:
      break;
  }
  if (c < 128 && std::isalnum(static_cast<int>(c)))
    stop("has an unsupported escape \\" + std::string(1, static_cast<char>(c)));
  std::vector<SetItem> items;
  literal(items, c);
  return items;
}

// After '['.
void SetReader::bracket(CharacterSet& set, int depth) {
  if (depth > kDeepest) stop("is too deep");
  set.negated = take("^");
  for (bool first = true; first || !is("]"); first = false) {
    if (!more()) stop("lacks a ']'");
    if (is("&&")) stop("has an unsupported intersection &&");
    if (is("[:")) stop("has an unsupported class " + quote(pattern_.substr(at_, 9)));
    if (take("[")) {
      CharacterSet inner;
      bracket(inner, depth + 1);
      if (inner.negated) stop("has an unsupported negated set inside of a set");
      set.items.insert(set.items.end(), inner.items.begin(), inner.items.end());
      continue;
    }
    member(set.items);
  }
  take("]");
}

// A character, an escape or a range of a bracket.
void SetReader::member(std::vector<SetItem>& items) {
  std::vector<SetItem> begin;
  if (take("\\")) {
    begin = escape();
  } else {
    literal(begin, take_character());
  }
  const bool range = begin[0].first <= begin[0].last && is("-") && !is("-]");
  if (!range) {
    items.insert(items.end(), begin.begin(), begin.end());
    return;
  }
  take("-");
  std::vector<SetItem> end;
  if (take("\\")) {
    end = escape();
  } else {
    end.push_back(character(take_character()));
  }
  if (end[0].first > end[0].last || end[0].first < begin[0].first) stop("has a wrong range in a set");
  items.push_back({.first = begin[0].first, .last = end[0].first});
  if (!ignore_case_) return;
  if (end[0].first >= 128) stop("has an unsupported range that ignores case");
  for (char32_t c = begin[0].first; c <= end[0].first; ++c) add_cases(items, c);
}

void CharacterSet::close() {
  for (char32_t c = 0; c < 128; ++c) ascii[c] = contains_slowly(c);
}

bool CharacterSet::contains_slowly(char32_t value) const {
  for (const SetItem& item : items) {
    const bool found = (value >= item.first && value <= item.last) ||
                       (item.categories != 0 && (category(value) & item.categories) != 0) ||
                       (item.white_space && is_white_space(value)) || (item.circled && is_circled_letter(value)) ||
                       (item.numbers_of_latin1 && is_number_of_latin1(value));
    if (found != item.negated) return !negated;
  }
  return negated;
}

}  // namespace motet
