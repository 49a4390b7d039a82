#include "motet/formats/toml.h"

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

std::string refusal(const std::string& bytes) {
  return message_of<Error>([&] { parse_toml(bytes, "f"); });
}

TEST(Toml, SectionsBecomeObjects) {
  const json value = parse_toml(
      "a = 1\n[model.attention]\nmechanism = \"dcmha\"\nsides = [\"pre\", \"post\"]\nx = 0.5\nq = true", "f");
  EXPECT_EQ(value.dump(),
            R"({"a":1,"model":{"attention":{"mechanism":"dcmha","q":true,"sides":["pre","post"],"x":0.5}}})");
  EXPECT_EQ(parse_toml("", "f"), json::object());
}

TEST(Toml, WrongSyntaxIsNamedWithLineAndColumn) {
  EXPECT_EQ(refusal("a = 1\nb = \n").substr(0, 22), "f: wrong TOML at line ");
  EXPECT_EQ(refusal("a = 1\na = 2").substr(0, 22), "f: wrong TOML at line ");
  EXPECT_EQ(refusal("a = \"\xff\"").substr(0, 22), "f: wrong TOML at line ");
}

TEST(Toml, DatesAndInfinitiesAreRefused) {
  EXPECT_EQ(refusal("a = 1\nb = 2020-01-01"), "f: a date or time is no value of Motet at line 2, column 5");
  EXPECT_EQ(refusal("a = inf"), "f: a number is not finite at line 1, column 5");
}

TEST(Toml, DeepInputIsRefused) {
  EXPECT_EQ(refusal("a = " + std::string(100, '[') + std::string(100, ']')).substr(0, 29),
            "f: more than 64 levels deep a");
  EXPECT_EQ(refusal("a = " + std::string(100000, '[')).substr(0, 22), "f: wrong TOML at line ");
  const auto nested = [](int depth) { return "a = " + std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_toml(nested(64), "f"));
  EXPECT_EQ(refusal("a = 1\nb " + nested(65).substr(2)), "f: more than 64 levels deep at line 2, column 69");
}

TEST(Toml, WrittenTextReadsBackTheSame) {
  const json value = {
      {"model", {{"hidden_size", 64}, {"attention", {{"mechanism", "mha"}, {"lambda", 0.8}}}}},
      {"train", {{"learning_rate", 3e-4}, {"one", 1.0}, {"names", {"a", "b\"\n"}}, {"empty", json::array()}}},
      {"tied", false}};
  EXPECT_EQ(parse_toml(toml_text(value), "f"), value);
  EXPECT_TRUE(parse_toml(toml_text(value), "f")["train"]["one"].is_number_float());
}

TEST(Toml, NumbersHaveTheFewestDigits) {
  EXPECT_EQ(toml_text({{"a", 0.1}, {"b", 1.0}, {"c", 3e-4}, {"d", 1e22}, {"e", 7}}),
            "a = 0.1\nb = 1.0\nc = 0.0003\nd = 1e+22\ne = 7\n");
  for (const double number : {0.1, 1.0 / 3, 1e-300, 1e300, 5e-324, 123456789.123456789, -2.5e-8})
    EXPECT_EQ(parse_toml(toml_text({{"x", number}}), "f")["x"].get<double>(), number);
}

TEST(Toml, EveryNameAndStringReadsBackTheSame) {
  const json value = {{"a b", "tab\t \x01 \x7F \\ \"quoted\" 日"}, {"", 1}, {"x.y", {{"z", {{{"k", 1}}, {{"k", 2}}}}}}};
  EXPECT_EQ(parse_toml(toml_text(value), "f"), value);
}

TEST(Toml, NullMembersAreLeftOutAndOtherValuesRefused) {
  EXPECT_EQ(parse_toml(toml_text({{"a", nullptr}, {"b", 1}}), "f"), json({{"b", 1}}));
  EXPECT_EQ(toml_text({{"a", json::array({json{{"b", 1}, {"c", nullptr}}})}}), "a = [{b = 1}]\n");
  EXPECT_EQ(message_of<Error>([] { toml_text({{"a", json::array({nullptr})}}); }),
            "toml_text: TOML has no null, want a value in each array");
  EXPECT_EQ(message_of<Error>([] { toml_text(3); }), "toml_text: the value is number, want an object");
}

TEST(Toml, FilesAreNamedInMessages) {
  const testing::TemporaryFolder folder;
  write_file_atomic(folder / "a.toml", "a = inf");
  EXPECT_EQ(message_of<Error>([&] { read_toml(folder / "a.toml"); }),
            (folder / "a.toml") + ": a number is not finite at line 1, column 5");
}

}  // namespace
}  // namespace motet
