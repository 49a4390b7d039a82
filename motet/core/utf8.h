// Strict UTF-8, one character at a time. Source: Unicode 15, table 3-7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motet {

// Whether the byte stands behind the first one of a character: 10xxxxxx.
constexpr bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

struct Utf8Step {
  enum class Kind { character, invalid, incomplete };
  Kind kind;
  size_t size;  // bytes of the character; else of the longest start of a character found here, at least 1
};

// Looks at the beginning of `bytes`, which must not be empty. Over-long forms, surrogates and values above U+10FFFF are
// invalid; a character that `bytes` cuts short is incomplete. Never reads outside `bytes`, never throws.
Utf8Step utf8_step(std::string_view bytes);

// The offset of the first byte that is not part of a whole character, or npos.
size_t utf8_invalid_at(std::string_view bytes);

// `text` itself when it is valid UTF-8; otherwise `storage`, filled with it, each longest start of a character that is
// none replaced by U+FFFD.
std::string_view valid_utf8(std::string_view text, std::string& storage);

// The nearest place from `at` on (`step` is 1), or before it (-1), where no character is cut; `at` itself where three
// bytes on there is none. What is looked at lies inside of `bytes`.
size_t utf8_boundary(std::string_view bytes, size_t at, int step);

// The number of characters; each invalid start counts as one.
size_t utf8_length(std::string_view bytes);

}  // namespace motet
