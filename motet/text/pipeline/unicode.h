// Properties of Unicode characters, as the reference tokenizers see them: Unicode 16 for categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "motet/core/utf8.h"

namespace motet {

struct CodePoint {
  char32_t value;
  size_t size;  // in bytes of UTF-8
};

// The character at `at` of valid UTF-8.
inline CodePoint code_point(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 31) << 6 | (byte(1) & 63), 2};
  if (lead < 0xF0) return {(lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63), 3};
  return {(lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63), 4};
}

// The first byte of the character that ends before `end` of valid UTF-8; `end` above 0.
inline size_t character_before(std::string_view text, size_t end) {
  do {
    --end;
  } while (continues_character(text[end]));
  return end;
}

void append_utf8(std::string& out, char32_t value);

// Sets of general categories: bit n is category n in utf8proc's order.
using CategorySet = uint32_t;
inline constexpr CategorySet kUppercase = 1 << 1, kLowercase = 1 << 2, kTitlecase = 1 << 3;
inline constexpr CategorySet kLetters = 0x3E, kMarks = 7 << 6, kNumbers = 7 << 9, kPunctuation = 0x7F << 12;
inline constexpr CategorySet kSymbols = 15 << 19, kSeparators = 7 << 23, kDigits = 1 << 9, kConnectors = 1 << 12;
inline constexpr CategorySet kWords = kLetters | kMarks | kDigits | 1 << 10 | kConnectors;  // and some circled letters

CategorySet category(char32_t value);

// The categories called "L", "Lu", "N" ...; 0 for a name that is none.
CategorySet category_named(std::string_view name);

bool is_white_space(char32_t value);      // White_Space
bool is_circled_letter(char32_t value);   // symbols that are Alphabetic, which word characters include
bool is_numeric(char32_t value);          // N of Unicode 17, as the pre-tokenizer Digits sees it
bool is_old_punctuation(char32_t value);  // ASCII punctuation and P of Unicode 8, as the pre-tokenizer Punctuation does

// Appends the lower case (full mapping, no context) and returns how many characters it is.
int append_lowercase(std::string& out, char32_t value);

// The characters whose category utf8proc's Unicode does not know; sorted.
struct CategoryRange {
  char32_t first, last;
  int category;
};
extern const CategoryRange kCategoryAdditions[];
extern const size_t kCategoryAdditionsCount;

}  // namespace motet
