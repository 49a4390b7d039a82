#include "motet/serve/keys.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

TEST(ApiKeys, AWrongOneLetsNobodyInAndNoneEverybody) {
  const ApiKeys keys({"first", "second"});
  EXPECT_EQ(keys.owner("Bearer first"), "0");
  EXPECT_EQ(keys.owner("bearer second"), "1");
  for (const char* wrong :
       {"Bearer firs", "Bearer first2", "Bearer ", "Bearer", "first", "Basic first", "", "Bearer  first"})
    EXPECT_EQ(keys.owner(wrong), std::nullopt) << wrong;
  EXPECT_EQ(keys.owner(std::nullopt), std::nullopt);
  EXPECT_EQ(keys.owner("Bearer " + std::string(5000, 'a')), std::nullopt);
  EXPECT_EQ(keys.owner("Bearer first" + std::string(300, '\0')), std::nullopt);
  EXPECT_EQ(ApiKeys({}).owner("Bearer"), "");
}

TEST(ApiKeys, ACommentBeginsALineOrStandsBehindABlank) {
  const testing::TemporaryFolder folder;
  write_file_atomic(folder.path() / "keys", "# two\r\n  first#1\t# a comment\n\n#second\nsecond # third\n");
  const ApiKeys keys(ApiKeys::of_file((folder.path() / "keys").string()));
  EXPECT_EQ(keys.owner("Bearer first#1"), "0");
  EXPECT_EQ(keys.owner("Bearer second"), "1");
  for (const char* wrong : {"Bearer first", "Bearer #second", "Bearer third"})
    EXPECT_EQ(keys.owner(wrong), std::nullopt) << wrong;
}

TEST(ApiKeys, AreVisibleCharacters) {
  EXPECT_EQ(testing::message_of<UsageError>([] { ApiKeys({""}); }),
            "an API key has 0 bytes, want 1 to 256 characters without spaces");
  EXPECT_EQ(testing::message_of<UsageError>([] { ApiKeys({"a b"}); }),
            "an API key has 3 bytes that are not all visible ASCII, want 1 to 256 characters without spaces");
  EXPECT_THROW(ApiKeys({std::string(257, 'a')}), UsageError);
}

TEST(ApiKeys, AWrongOneOfAFileIsNamedByItsLine) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "keys").string();
  write_file_atomic(path, "# two\n\nfirst\nsecret one\n");
  EXPECT_EQ(testing::message_of<UsageError>([&] { ApiKeys::of_file(path); }),
            path +
                ": line 4: an API key has 10 bytes that are not all visible ASCII, want 1 to 256 characters without "
                "spaces");
}

}  // namespace
}  // namespace motet
