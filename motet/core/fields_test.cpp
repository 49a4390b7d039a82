#include "motet/core/fields.h"

#include <optional>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

enum class Colour { red, green };

struct Painted {
  int64_t count = 3;
  double width = 0.5;
  bool dry = true;
  std::string name = "wall";
  Colour colour = Colour::green;
  std::optional<Colour> edge;
};

const Fields<Painted>& fields() {
  using P = Painted;
  static const Fields<P> table{{"count", &P::count, {1, 9}, "how many"},
                               {"width", &P::width, {}, "how wide"},
                               {"dry", &P::dry, "dry already"},
                               {"name", &P::name, "what it is"},
                               {"colour", &P::colour, {{"red", Colour::red}, {"green", Colour::green}}, "its colour"},
                               {"edge", &P::edge, {{"none", std::nullopt}, {"red", Colour::red}}, "of its edge"}};
  return table;
}

TEST(Fields, DefaultsTypesAndRangesComeFromTheStruct) {
  EXPECT_EQ(
      defaults(fields().table()),
      json({{"count", 3}, {"width", 0.5}, {"dry", true}, {"name", "wall"}, {"colour", "green"}, {"edge", "none"}}));
  const auto wanted = [](const char* name) { return accepted(find_option(fields().table(), name, "")); };
  EXPECT_EQ(wanted("count"), "integer, 1 to 9");
  EXPECT_EQ(wanted("width"), "number");
  EXPECT_EQ(wanted("dry"), "true or false");
  EXPECT_EQ(wanted("name"), "string");
  EXPECT_EQ(wanted("colour"), "one of red, green");
  EXPECT_EQ(find_option(fields().table(), "dry", "").sentence, "dry already");
}

TEST(Fields, ASectionFillsTheStructAndComesBack) {
  const json given{{"count", "7"}, {"width", 2}, {"dry", false}, {"name", "door"}, {"colour", "red"}, {"edge", "red"}};
  const Painted p = fields().parse(given, "paint");
  EXPECT_EQ(p.count, 7);
  EXPECT_EQ(p.width, 2.0);
  EXPECT_FALSE(p.dry);
  EXPECT_EQ(p.name, "door");
  EXPECT_EQ(p.colour, Colour::red);
  EXPECT_EQ(p.edge, Colour::red);
  EXPECT_EQ(fields().write(p), resolve(fields().table(), given, "paint"));
  EXPECT_EQ(fields().parse({{"edge", "none"}}, "").edge, std::nullopt);
}

TEST(Fields, OtherKeysOfAResolvedSectionAreLeftAlone) {
  json section = fields().write({});
  section["of_another_table"] = 1;
  EXPECT_EQ(fields().read(section).count, 3);
}

TEST(Fields, WhatDoesNotFitIsRefusedAsByTheTable) {
  const auto says = [](const json& given) { return message_of<UsageError>([&] { fields().parse(given, "paint"); }); };
  EXPECT_EQ(says({{"count", 12}}), "paint.count: 12 is above 9");
  EXPECT_EQ(says({{"colour", "gren"}}),
            "paint.colour: 'gren' is not known, want one of red, green; nearest is 'green'");
  EXPECT_EQ(says({{"cuont", 1}}).substr(0, 51), "unknown key 'paint.cuont': nearest is 'paint.count'");
}

}  // namespace
}  // namespace motet
