#include "motet/core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace motet {
namespace {

using Kind = Utf8Step::Kind;

std::string encoded(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  if (code < 0x10000) {
    return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
            static_cast<char>(0x80 | (code & 63))};
  }
  return {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
          static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
}

TEST(Utf8, EveryCodePointIsACharacterExceptSurrogates) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    const std::string bytes = encoded(code);
    const Utf8Step step = utf8_step(bytes + "tail");
    ASSERT_EQ(step.kind, surrogate ? Kind::invalid : Kind::character) << code;
    ASSERT_EQ(step.size, surrogate ? 1 : bytes.size()) << code;
  }
}

TEST(Utf8, EveryProperPrefixIsIncomplete) {
  for (const uint32_t code : {0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    const std::string bytes = encoded(code);
    for (size_t size = 1; size < bytes.size(); ++size) {
      const Utf8Step step = utf8_step(std::string_view(bytes).substr(0, size));
      EXPECT_EQ(step.kind, Kind::incomplete);
      EXPECT_EQ(step.size, size);
    }
  }
}

TEST(Utf8, OverlongFormsAndValuesAboveTheLastAreInvalid) {
  for (const std::string bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                                  "\xF5\x80\x80\x80", "\xFF", "\x80", "\xBF"}) {
    EXPECT_EQ(utf8_step(bytes).kind, Kind::invalid);
    EXPECT_EQ(utf8_step(bytes).size, 1u);
  }
}

TEST(Utf8, AnInvalidStepCoversTheLongestStartOfACharacter) {
  EXPECT_EQ(utf8_step("\xF0\x90\x80(").size, 3u);
  EXPECT_EQ(utf8_step("\xE2\x82(").size, 2u);
}

TEST(Utf8, InvalidAtIsTheOffsetOfTheFirstBadByte) {
  EXPECT_EQ(utf8_invalid_at("abc\xC3\xBC"), std::string_view::npos);
  EXPECT_EQ(utf8_invalid_at("ab\xFF\xFF"), 2u);
  EXPECT_EQ(utf8_invalid_at("ab\xC3"), 2u);
  EXPECT_EQ(utf8_invalid_at(""), std::string_view::npos);
}

TEST(Utf8, LengthCountsCharacters) {
  EXPECT_EQ(utf8_length("a\xC2\xB1"
                        "b"),
            3u);
  EXPECT_EQ(utf8_length(""), 0u);
}

}  // namespace
}  // namespace motet
