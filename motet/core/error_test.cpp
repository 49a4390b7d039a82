#include "motet/core/error.h"

#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Error, ExitCodesAreOneTwoAndOneHundredThirty) {
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
  EXPECT_EQ(quote(""), "''");
}

TEST(Error, QuoteCutsLongTexts) {
  EXPECT_EQ(quote(std::string(81, 'a')), "'" + std::string(80, 'a') + "'...");
  EXPECT_EQ(quote(std::string(80, 'a')), "'" + std::string(80, 'a') + "'");
}

}  // namespace
}  // namespace motet
