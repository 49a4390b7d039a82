#include "motet/data/hash.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

// The published values, which `xxhsum -H3` prints too.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_text(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hash_text(hash64("abc")), "78af5f94892f3950");
}

TEST(Hash, PartsGiveTheHashOfTheWhole) {
  const std::string bytes(100'000, 'x');
  for (const size_t part : {1, 7, 240, 4096}) {
    Hash64 hash;
    for (size_t at = 0; at < bytes.size(); at += part) hash.add(std::string_view(bytes).substr(at, part));
    EXPECT_EQ(hash.value(), hash64(bytes)) << part;
  }
  EXPECT_NE(hash64(bytes, 1), hash64(bytes));
}

}  // namespace
}  // namespace motet
