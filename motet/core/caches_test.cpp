// Cache sizes as Linux tells them, from a folder made by hand.
#include "motet/core/caches.h"

#include <gtest/gtest.h>

#include <fstream>

#include "motet/core/testing.h"

namespace motet {
namespace {

void put(const std::filesystem::path& folder, const char* type, const char* level, const char* size) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "type") << type << "\n";
  std::ofstream(folder / "level") << level << "\n";
  std::ofstream(folder / "size") << size << "\n";
}

TEST(Caches, AreThoseOfDataAtTheirLevels) {
  const testing::TemporaryFolder folder;
  put(folder / "index0", "Data", "1", "48K");
  put(folder / "index1", "Instruction", "1", "64K");
  put(folder / "index2", "Unified", "2", "2048K");
  put(folder / "index3", "Unified", "3", "480M");
  const CacheSizes sizes = read_cache_sizes(folder.path());
  EXPECT_EQ(sizes.l1, 48 << 10);
  EXPECT_EQ(sizes.l2, 2 << 20);
  EXPECT_EQ(sizes.l3, int64_t{480} << 20);
}

TEST(Caches, WhatIsNotToldIsZero) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(read_cache_sizes(folder / "none").l2, 0);
  put(folder / "index1", "Instruction", "1", "64K");
  EXPECT_EQ(read_cache_sizes(folder.path()).l1, 0);
  put(folder / "index2", "Unified", "2", "large");
  EXPECT_EQ(read_cache_sizes(folder.path()).l2, 0);
  EXPECT_EQ(read_cache_sizes(folder.path()).l3, 0);
}

TEST(Caches, AreReadAtSomeSpeed) { EXPECT_GT(read_bandwidth(1 << 14), 0); }

}  // namespace
}  // namespace motet
