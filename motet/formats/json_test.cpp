#include "motet/formats/json.h"

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json_members.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

std::string refusal(const std::string& bytes) {
  return message_of<Error>([&] { parse_json(bytes, "f"); });
}

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, ValuesOfEveryKindAreRead) {
  const auto value = parse_json(R"({"a": [1, -2, 2.5, true, false, null, "ü\n\u00fc"], "b": {}})", "f");
  EXPECT_EQ(value.dump(), R"({"a":[1,-2,2.5,true,false,null,"ü\nü"],"b":{}})");
  EXPECT_EQ(parse_json(" 3 ", "f"), 3);
}

TEST(Json, DepthSixtyFourPassesAndSixtyFiveDoesNot) {
  EXPECT_NO_THROW(parse_json(nested(64), "f"));
  EXPECT_EQ(refusal(nested(65)), "f: JSON is more than 64 levels deep");
  EXPECT_EQ(refusal(std::string(10'000'000, '[')), "f: JSON is more than 64 levels deep");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal(objects), "f: JSON is more than 64 levels deep");
}

TEST(Json, ANameTwiceInOneObjectIsRefused) {
  EXPECT_EQ(refusal(R"({"x": {"a": 1, "b": 2, "a": 3}})"), "f: the name 'a' appears twice in one object");
  EXPECT_EQ(refusal(R"({"a": 1, "\u0061": 2})"), "f: the name 'a' appears twice in one object");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 2}])", "f"));
}

TEST(Json, WrongSyntaxIsNamedWithLineAndColumn) {
  EXPECT_EQ(refusal("{\n  \"a\": x}"), "f: wrong JSON at line 2, column 8");
  EXPECT_EQ(refusal("[1, ]"), "f: wrong JSON at line 1, column 5");
  EXPECT_EQ(refusal("[1] 2"), "f: wrong JSON at line 1, column 5");
  EXPECT_EQ(refusal("{a: 1}"), "f: wrong JSON at line 1, column 2");
  EXPECT_EQ(refusal("NaN"), "f: wrong JSON at line 1, column 1");
}

TEST(Json, AnEarlyEndIsSaid) {
  const std::string whole = R"({"a": [1, {"b": "c"}]})";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(refusal(whole.substr(0, size)), text("f: JSON ends too early, after ", size, " bytes"));
  }
}

TEST(Json, InvalidUtf8IsRefused) {
  EXPECT_EQ(refusal("\n[\"\xff\"]"), "f: no UTF-8 at line 2, column 3");
  EXPECT_EQ(refusal("[\"\xc3"), "f: no UTF-8 at line 1, column 3");
  EXPECT_EQ(refusal(R"(["\ud800"])").substr(0, 15), "f: wrong JSON a");
}

TEST(Json, NumbersOutsideOfDoubleAreRefused) {
  EXPECT_EQ(refusal("[1e999]"), "f: a number is too large at line 1, column 7");
}

TEST(Json, MoreBytesThanAllowedAreRefused) {
  EXPECT_EQ(message_of<Error>([] { parse_json("[1,2]", "f", 4); }), "f: 5 bytes of JSON, want at most 4");
  EXPECT_EQ(parse_json("[1,2]", "f", 5).size(), 2u);
  const testing::TemporaryFolder folder;
  write_file_atomic(folder / "a.json", "[1,2]");
  EXPECT_EQ(read_json(folder / "a.json", 5).size(), 2u);
}

TEST(Json, FilesAreNamedInMessages) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.json";
  write_file_atomic(path, "[");
  EXPECT_EQ(message_of<Error>([&] { read_json(path); }), path + ": JSON ends too early, after 1 bytes");
}

// The value without the members of the object at a/b, and these as they were given.
std::pair<json, json> split(const std::string& bytes) {
  json given = json::array();
  const json rest = parse_json_members(bytes, "f", {"a", "b"}, [&](std::string&& name, json&& value) {
    given.push_back({std::move(name), std::move(value)});
  });
  return {rest, given};
}

TEST(JsonMembers, OneObjectIsGivenAwayInItsOrder) {
  const auto [rest, given] =
      split(R"({"b": {"x": 1}, "a": {"c": [{"b": {"y": 2}}], "b": {"z": 3, "": [4, {"z": 5}], "b": {}, "z": "6"},
                                       "d": {"b": 7}}, "e": {"a": {"b": {"k": 8}}}})");
  EXPECT_EQ(given, json::parse(R"([["z", 3], ["", [4, {"z": 5}]], ["b", {}], ["z", "6"]])"));
  EXPECT_EQ(rest, json::parse(R"({"b": {"x": 1}, "a": {"c": [{"b": {"y": 2}}], "b": {}, "d": {"b": 7}},
                                  "e": {"a": {"b": {"k": 8}}}})"));
}

TEST(JsonMembers, WithoutThatObjectNothingIsGivenAway) {
  for (const char* bytes : {"3", R"([{"a": {"b": {"c": 1}}}])", R"({"a": 1, "b": {"c": 1}})",
                            R"({"a": [{"b": {"c": 1}}]})", R"({"a": {"b": [{"c": 1}]}})"}) {
    const auto [rest, given] = split(bytes);
    EXPECT_EQ(rest, json::parse(bytes));
    EXPECT_TRUE(given.empty()) << bytes;
  }
}

TEST(JsonMembers, WhatIsInsideIsCheckedToo) {
  EXPECT_EQ(message_of<Error>([] { split(R"({"a": {"b": {"c": {"d": 1, "d": 2}}}})"); }),
            "f: the name 'd' appears twice in one object");
  EXPECT_EQ(message_of<Error>([] { split(R"({"a": {"b": {"c": )"); }), "f: JSON ends too early, after 18 bytes");
  message_of<Error>([] { split(R"({"a": {"b": {"c": )" + std::string(70, '[')); });
}

}  // namespace
}  // namespace motet
