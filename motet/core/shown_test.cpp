#include "motet/core/shown.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

using nlohmann::json;

TEST(Shown, IsOneLineWithoutHalfACharacter) {
  EXPECT_EQ(shown("a\nb"), "'a\\nb'");
  EXPECT_EQ(shown(json::array({1, "a\n"})), R"([1,"a\n"])");
  const auto list_of = [](size_t letters, const char* more) { return json::array({std::string(letters, 'a') + more}); };
  EXPECT_EQ(shown(list_of(76, "")), "[\"" + std::string(76, 'a') + "\"]");  // 80 bytes
  EXPECT_EQ(shown(list_of(76, "日b")), "[\"" + std::string(76, 'a') + "...");
  EXPECT_EQ(shown(list_of(75, "日b")), "[\"" + std::string(75, 'a') + "日...");
}

}  // namespace
}  // namespace motet
