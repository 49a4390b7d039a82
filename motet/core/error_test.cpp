#include "motet/core/error.h"

#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Error, ExitCodesAreOneTwoAndOneHundredThirty) {  // 143 after SIGTERM: interrupt_test.cpp
  EXPECT_EQ(Error("").exit_code(), 1);
  EXPECT_EQ(UsageError("").exit_code(), 2);
  EXPECT_EQ(Interrupted("").exit_code(), 130);
}

TEST(Error, FailJoinsItsParts) {
  EXPECT_EQ(message_of<Error>([] { fail("k has ", 3, " heads"); }), "k has 3 heads");
  EXPECT_EQ(message_of<UsageError>([] { fail_usage("want ", 0.5); }), "want 0.5");
}

TEST(Error, NearestNameAcceptsOneSwapOneSlipAndAnyCase) {
  const std::vector<std::string> known = {"mha", "dcmha", "coca", "talking_heads"};
  EXPECT_EQ(nearest_name("dcmah", known), "dcmha");
  EXPECT_EQ(nearest_name("talkingheads", known), "talking_heads");
  EXPECT_EQ(nearest_name("COCA", known), "coca");
  EXPECT_EQ(nearest_name("mhaa", known), "mha");
  EXPECT_EQ(nearest_name("xb", {"bq"}), "");  // a letter that moves and one that changes are two slips
}

TEST(Error, NearestNameAllowsOneSlipInThreeLetters) {
  EXPECT_EQ(nearest_name("bench", {"bexch"}), "bexch");
  EXPECT_EQ(nearest_name("each", {"bench"}), "");  // 2 of 5
  EXPECT_EQ(nearest_name("abcdef", {"abcdxy"}), "abcdxy");
  EXPECT_EQ(nearest_name("abcdef", {"abcxyz"}), "");             // 3 of 6
  EXPECT_EQ(nearest_name("ab", {"ax"}), "ax");                   // 1 is always allowed
  EXPECT_EQ(nearest_name("set", {"seed"}), "");                  // 2 of 4
  EXPECT_EQ(nearest_name("seed", {"speed", "seeds"}), "speed");  // the first of equals
  EXPECT_EQ(nearest_name("speeds", {"seed", "speed"}), "speed");
}

TEST(Error, NearestNameTakesAbbreviations) {
  EXPECT_EQ(nearest_name("params", {"flops", "parameters"}), "parameters");
  EXPECT_EQ(nearest_name("talk_head", {"talking_heads"}), "talking_heads");
  EXPECT_EQ(nearest_name("cfg", {"config"}), "config");
  EXPECT_EQ(nearest_name("arams", {"parameters"}), "");  // another beginning
  EXPECT_EQ(nearest_name("par", {"parameters"}), "");    // less than half of it
  EXPECT_EQ(nearest_name("sp", {"step"}), "");
}

TEST(Error, NearestNameDoesNotCountACommonSection) {
  EXPECT_EQ(nearest_name("model.attention.foo", {"model.attention.bias"}), "");
  EXPECT_EQ(nearest_name("train.stesp", {"train.seed", "train.steps"}), "train.steps");
  EXPECT_EQ(nearest_name("trian.steps", {"train.steps"}), "train.steps");
}

TEST(Error, NearestNameIsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("zebra", {"mha", "coca"}), "");
  EXPECT_EQ(nearest_name("mha", {}), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), {"mha"}), "");
}

TEST(Error, UnknownNameSaysTheNearestAndAllKnown) {
  EXPECT_EQ(unknown_name("mechanism", "dcmah", {"coca", "dcmha"}),
            "unknown mechanism 'dcmah': nearest is 'dcmha'; known: coca, dcmha");
  EXPECT_EQ(unknown_name("key", "zebra", {"coca"}), "unknown key 'zebra': known: coca");
  EXPECT_EQ(unknown_name("key", "x", {}), "unknown key 'x': none is known");
}

TEST(Error, QuoteEscapesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(quote("plain ü"), "'plain ü'");
  EXPECT_EQ(quote("a\nb\x1b\xff"), "'a\\nb\\x1b\\xff'");
  EXPECT_EQ(quote("a\x7f \t"), "'a\\x7f \\x09'");  // DEL is a control character too
  EXPECT_EQ(quote(""), "''");
}

TEST(Error, QuoteKeepsTheEndsOfLongTexts) {  // of a path, the file's name
  const auto of = [](char letter, size_t count) { return std::string(count, letter); };
  EXPECT_EQ(quote(of('a', 41) + of('b', 40)), "'" + of('a', 40) + "'...'" + of('b', 40) + "'");
  EXPECT_EQ(quote(of('a', 80)), "'" + of('a', 80) + "'");
  // A letter stays whole.
  EXPECT_EQ(quote(of('a', 39) + "日" + of('b', 10) + "日" + of('c', 39)),
            "'" + of('a', 39) + "日'...'日" + of('c', 39) + "'");
  EXPECT_EQ(quote(of('\xbf', 200)).size(), 86 * 4 + 7);  // bytes that are no text
}

}  // namespace
}  // namespace motet
