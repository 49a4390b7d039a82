#include "motet/text/regex/regex.h"

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

// The matches, joined by '|'.
std::string matches(const char* pattern, std::string_view text) {
  const Regex regex(pattern);
  RegexSearch search(regex, text);
  std::string out;
  while (const auto found = search.next()) {
    out += (out.empty() ? "" : "|") + std::string(text.substr(found->begin, found->end - found->begin));
  }
  return out;
}

TEST(Regex, AlternativesAreTriedInOrder) {
  EXPECT_EQ(matches("a|ab|c", "abcac"), "a|c|a|c");
  EXPECT_EQ(matches("ab|a", "aba"), "ab|a");
  EXPECT_EQ(matches("(?:a|b)+c|b", "abacb"), "abac|b");
  EXPECT_EQ(matches("(?:ab){2}|(?:x|yz)?q", "abababyzq"), "abab|yzq");
}

TEST(Regex, RepeatsGiveBackWhatTheRestNeeds) {
  EXPECT_EQ(matches("a+ab", "aaab"), "aaab");
  EXPECT_EQ(matches("a*?b", "aab"), "aab");
  EXPECT_EQ(matches("a++ab|b", "aaab"), "b");
  EXPECT_EQ(matches("\\d{1,3}", "1234567"), "123|456|7");
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", "a   b"), "  | ");
}

TEST(Regex, SetsKnowUnicode) {
  EXPECT_EQ(matches("\\p{L}+", "d\u00e9j\u00e0 1\u65E5\u672C"), "d\u00e9j\u00e0|\u65E5\u672C");
  EXPECT_EQ(matches("[^\\s\\p{L}\\p{N}]+", "a,!\u3000\u20AC"), ",!|\u20AC");
  EXPECT_EQ(matches("(?i:'S|ll)", "'s LL 'S"), "'s|LL|'S");
  EXPECT_EQ(matches("[\\x{41}-\\x43]+", "xABCD"), "ABC");
  EXPECT_EQ(matches("(?<=a)b|(?<!a)c", "abacc"), "b|c");
}

// As Oniguruma in tokenizers 0.23.
TEST(Regex, WordsOutsideOfASetHaveTheNumbersOfLatin1) {
  const std::string text = "m\u00B2 x\u00B3\u00B9y \u00BC\u00BD\u00BE \u2074\u2150,\u24B6";
  EXPECT_EQ(matches("\\w+", text), "m\u00B2|x\u00B3\u00B9y|\u00BC\u00BD\u00BE|\u24B6");
  EXPECT_EQ(matches("\\W+", text), " | | \u2074\u2150,");
  EXPECT_EQ(matches("[\\w]+", text), "m|x|y|\u24B6");
  EXPECT_EQ(matches("[^\\w\\s]+", text), "\u00B2|\u00B3\u00B9|\u00BC\u00BD\u00BE|\u2074\u2150,");
}

// As tokenizers 0.23.
TEST(Regex, AMatchMayBeNothingWhereNoMatchEnds) {
  const auto places = [](const char* pattern, std::string_view text) {
    const Regex regex(pattern);
    RegexSearch search(regex, text);
    std::string out;
    while (const auto found = search.next()) out += motet::text(found->begin, "-", found->end, " ");
    return out;
  };
  EXPECT_EQ(places("(?=b)|c", "abcb"), "1-1 2-3 ");
  EXPECT_EQ(places("x?", "axb"), "0-0 1-2 3-3 ");
  EXPECT_EQ(places("^|$", "\u00E9"), "0-0 2-2 ");
  EXPECT_EQ(places("(?!x)", "\u00E9"), "0-0 2-2 ");
  EXPECT_EQ(places("^|$", ""), "");
}

TEST(Regex, WhatItDoesNotKnowIsNamed) {
  const auto refused = [](const char* pattern) { return message_of<Error>([&] { Regex regex(pattern, "f"); }); };
  EXPECT_EQ(refused("a(?<name>b)"), "f: the pattern 'a(?<name>b)' has an unsupported group '(?<n' (at byte 2)");
  EXPECT_EQ(refused("\\bword"), "f: the pattern '\\bword' has an unsupported escape \\b (at byte 2)");
  EXPECT_EQ(refused("\\p{Greek}"), "f: the pattern '\\p{Greek}' has an unsupported property 'Greek' (at byte 3)");
  EXPECT_EQ(refused("(a|b*)+"), "f: the pattern '(a|b*)+' repeats a group that can be empty (at byte 7)");
  EXPECT_EQ(refused("[a"), "f: the pattern '[a' lacks a ']' (at byte 2)");
  EXPECT_EQ(refused("+a"), "f: the pattern '+a' repeats nothing (at byte 0)");
  EXPECT_EQ(refused("(?:(?:ab){1000}){1000}"),
            "f: the pattern '(?:(?:ab){1000}){1000}' is too long once its repeats are written out (at byte 22)");
}

TEST(Regex, EndlessSearchesEndInAnError) {
  const Regex regex("(?:a+)+b");
  const std::string text(5000, 'a');
  RegexSearch search(regex, text);
  EXPECT_EQ(message_of<Error>([&] { search.next(); }), "the pattern '(?:a+)+b' takes too many steps on this text");
}

}  // namespace
}  // namespace motet
