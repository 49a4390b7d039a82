#include "motet/core/options.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/shown.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

const OptionTable& table() {
  static const OptionTable options = {
      {.name = "hidden_size", .type = OptionType::integer, .default_value = 64, .min = 1, .max = 65536},
      {.name = "learning_rate", .type = OptionType::number, .default_value = 1e-3, .min = 0},
      {.name = "tied", .type = OptionType::boolean, .default_value = false},
      {.name = "block",
       .type = OptionType::string,
       .default_value = "sequential",
       .choices = {"sequential", "parallel"}},
      {.name = "note", .type = OptionType::string, .default_value = ""}};
  return options;
}

json check(const std::string& name, const json& value) {
  return checked(find_option(table(), name, "model"), value, "model." + name);
}

std::string refusal(const std::string& name, const json& value) {
  return message_of<UsageError>([&] { check(name, value); });
}

TEST(Options, StringsOfSetAreParsedToTheType) {
  EXPECT_EQ(check("hidden_size", "128"), 128);
  EXPECT_TRUE(check("hidden_size", "1e3").is_number_integer());
  EXPECT_EQ(check("hidden_size", "1e3"), 1000);
  EXPECT_EQ(check("learning_rate", "3e-4"), 3e-4);
  EXPECT_EQ(check("learning_rate", "+1"), 1.0);
  EXPECT_EQ(check("tied", "true"), true);
  EXPECT_EQ(check("block", "parallel"), "parallel");
}

TEST(Options, JsonValuesAreTakenAsTheyAre) {
  EXPECT_EQ(check("hidden_size", 7), 7);
  EXPECT_TRUE(check("hidden_size", 7.0).is_number_integer());
  EXPECT_TRUE(check("learning_rate", 1).is_number_float());
  EXPECT_EQ(check("tied", true), true);
  EXPECT_EQ(check("note", "any"), "any");
}

TEST(Options, WrongTypesAreRefusedWithWhatIsWanted) {
  EXPECT_EQ(refusal("learning_rate", "abc"), "model.learning_rate: 'abc' is not a number, want number, at least 0");
  EXPECT_EQ(refusal("hidden_size", "1.5"), "model.hidden_size: '1.5' is not an integer, want integer, 1 to 65536");
  EXPECT_EQ(refusal("hidden_size", true), "model.hidden_size: true is not an integer, want integer, 1 to 65536");
  EXPECT_EQ(refusal("hidden_size", json::array({1, 2})),
            "model.hidden_size: [1,2] is not an integer, want integer, 1 to 65536");
  EXPECT_EQ(refusal("tied", "yes"), "model.tied: 'yes' is not a boolean, want true or false");
  EXPECT_EQ(refusal("note", 3), "model.note: 3 is not a string, want string");
  for (const char* word : {"", " 1", "1 ", "0x10", "1,5", "--1", "++1", "+-1", "nan", "inf", "1e999"})
    EXPECT_NE(refusal("learning_rate", word).find("is not a number"), std::string::npos) << word;
}

TEST(Options, ValuesOutsideOfTheRangeAreRefused) {
  EXPECT_EQ(refusal("hidden_size", "-3"), "model.hidden_size: '-3' is below 1");
  EXPECT_EQ(refusal("hidden_size", -3), "model.hidden_size: -3 is below 1");
  EXPECT_EQ(refusal("hidden_size", 65537), "model.hidden_size: 65537 is above 65536");
  EXPECT_EQ(refusal("hidden_size", "1e300"), "model.hidden_size: '1e300' is above 65536");
  EXPECT_EQ(refusal("learning_rate", -0.5), "model.learning_rate: -0.5 is below 0");
}

TEST(Options, TheEndsOfARangeAreInside) {
  EXPECT_EQ(check("hidden_size", "1"), 1);
  EXPECT_EQ(check("hidden_size", 65536), 65536);
  EXPECT_EQ(check("learning_rate", 0), 0);
  const Option free = {.name = "n", .type = OptionType::integer, .default_value = 0};
  EXPECT_EQ(checked(free, "9007199254740992", "n"), int64_t{1} << 53);
  EXPECT_EQ(checked(free, "-9007199254740992", "n"), -(int64_t{1} << 53));
  const Option part = {.name = "x", .type = OptionType::number, .default_value = 0, .min = -0.5, .max = 0.5};
  EXPECT_EQ(checked(part, 0.5, "x"), 0.5);
  EXPECT_EQ(checked(part, "-0.5", "x"), -0.5);
}

TEST(Options, IntegersBeyondADoubleAreRefused) {
  const Option free = {.name = "n", .type = OptionType::integer, .default_value = 0};
  EXPECT_EQ(message_of<UsageError>([&] { checked(free, "1e17", "n"); }), "n: '1e17' is above 9007199254740992");
  EXPECT_EQ(message_of<UsageError>([&] { checked(free, "-1e17", "n"); }), "n: '-1e17' is below -9007199254740992");
}

TEST(Options, AnOptionOf64BitsTakesEveryOneOfThem) {
  const Option seed = {.name = "s", .type = OptionType::integer, .default_value = 0, .min = -0x1p63, .max = 0x1p63};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checked(seed, kMost, "s"), kMost);
  EXPECT_EQ(checked(seed, "9223372036854775807", "s"), kMost);
  EXPECT_EQ(checked(seed, -kMost - 1, "s"), -kMost - 1);
  EXPECT_EQ(checked(seed, (int64_t{1} << 53) + 1, "s"), (int64_t{1} << 53) + 1);
  const Option free = {.name = "n", .type = OptionType::integer, .default_value = 0};
  EXPECT_EQ(message_of<UsageError>([&] { checked(free, kMost, "n"); }),
            "n: 9223372036854775807 is above 9007199254740992");
  EXPECT_EQ(message_of<UsageError>([&] { checked(seed, uint64_t{1} << 63, "s"); }),
            "s: 9223372036854775808 is above 9223372036854775807");
  for (const json& more : {json(0x1p63), json("9223372036854775808"), json(0x1p64), json(1e300)})
    EXPECT_EQ(message_of<UsageError>([&] { checked(seed, more, "s"); }),
              "s: " + shown(more) + " is above 9223372036854775807");
  EXPECT_EQ(message_of<UsageError>([&] { checked(seed, -1e300, "s"); }), "s: -1e+300 is below -9223372036854775808");
  const std::string wanted = "integer, -9223372036854775808 to 9223372036854775807";
  EXPECT_EQ(message_of<UsageError>([&] { checked(seed, 1.5, "s"); }), "s: 1.5 is not an integer, want " + wanted);
  EXPECT_EQ(message_of<UsageError>([&] { checked(seed, "1e17", "s"); }),
            "s: '1e17' is rounded, want " + wanted + ", by its digits");
}

TEST(Options, UnknownChoicesNameTheNearest) {
  EXPECT_EQ(refusal("block", "paralel"),
            "model.block: 'paralel' is not known, want one of sequential, parallel; nearest is 'parallel'");
  refusal("block", "par");
  EXPECT_EQ(refusal("block", "x"), "model.block: 'x' is not known, want one of sequential, parallel");
}

TEST(Options, UnknownKeysNameTheNearest) {
  EXPECT_EQ(message_of<UsageError>([] { find_option(table(), "hidden_siez", "model"); }),
            "unknown key 'model.hidden_siez': nearest is 'model.hidden_size'; known: model.hidden_size, "
            "model.learning_rate, model.tied, model.block, model.note");
}

TEST(Options, ResolveFillsDefaultsAndChecksWhatIsGiven) {
  const json all = resolve(table(), {{"hidden_size", "32"}}, "model");
  EXPECT_EQ(
      all,
      json({{"hidden_size", 32}, {"learning_rate", 1e-3}, {"tied", false}, {"block", "sequential"}, {"note", ""}}));
  EXPECT_EQ(resolve(table(), nullptr, "model"), defaults(table()));
  EXPECT_EQ(message_of<UsageError>([] { resolve(table(), {{"tied", 1}}, "model"); }),
            "model.tied: 1 is not a boolean, want true or false");
  message_of<UsageError>([] { resolve(table(), {{"wide", 1}}, "model"); });
  EXPECT_EQ(message_of<UsageError>([] { resolve(table(), 3, "model"); }), "model: 3 is not a section of keys");
}

TEST(Options, AValueWithoutEffectIsRefused) {
  const OptionTable both = {
      {.name = "version", .type = OptionType::string, .default_value = "v1", .choices = {"v1", "v2", "v3"}},
      {.name = "lambda", .type = OptionType::number, .default_value = 0.8, .where = {"version", {"v2", "v3"}}},
      {.name = "window", .type = OptionType::integer, .default_value = 0},
      {.name = "pattern", .type = OptionType::string, .default_value = "L", .where = {"window", {0}, true}}};
  const auto refused = [&](const json& given) {
    return message_of<UsageError>([&] { resolve(both, given, "model"); });
  };
  EXPECT_EQ(refused({{"lambda", 0.5}}), "model.lambda: 0.5 has no effect, want version = v2 or v3");
  EXPECT_EQ(refused({{"pattern", "LG"}}), "model.pattern: 'LG' has no effect, want window other than 0");
  EXPECT_EQ(resolve(both, {{"lambda", 0.8}, {"pattern", "L"}}, "model"), defaults(both));
  const json fit{{"version", "v3"}, {"lambda", 0.5}, {"window", 4}, {"pattern", "LG"}};
  EXPECT_EQ(resolve(both, fit, "model"), fit);
  EXPECT_EQ(words(both[0].where), "");
}

TEST(Options, AMissingValueWithoutDefaultIsRefused) {
  const OptionTable needed = {{.name = "mechanism", .type = OptionType::string, .default_value = nullptr}};
  EXPECT_EQ(message_of<UsageError>([&] { resolve(needed, nullptr, ""); }), "mechanism: is missing, want string");
}

TEST(Options, AcceptedSaysTypeRangeAndChoices) {
  EXPECT_EQ(accepted(table()[0]), "integer, 1 to 65536");
  EXPECT_EQ(accepted(table()[1]), "number, at least 0");
  EXPECT_EQ(accepted(table()[2]), "true or false");
  EXPECT_EQ(accepted(table()[3]), "one of sequential, parallel");
  EXPECT_EQ(accepted({.name = "x", .type = OptionType::number, .default_value = 0, .max = 2}), "number, at most 2");
  EXPECT_EQ(accepted({.name = "x", .type = OptionType::number, .default_value = 0, .min = -1, .max = 2}),
            "number, -1 to 2");
  EXPECT_EQ(accepted({.name = "x", .type = OptionType::string, .default_value = "a", .choices = {"a"}}), "a");
  EXPECT_EQ(accepted({"x", OptionType::string, "a", {}, {}, {}, ""}), "string");  // {} of a table is 0 to 0
}

TEST(Options, HostileStringsStayInOneShortLine) {
  EXPECT_LT(refusal("hidden_size", std::string(10000, '\n')).size(), 400u);
}

}  // namespace
}  // namespace motet
