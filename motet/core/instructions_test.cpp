#include "motet/core/instructions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace motet {
namespace {

bool named(const char* name) {
  const std::vector<std::string> all = instruction_names();
  return std::find(all.begin(), all.end(), name) != all.end();
}

TEST(Instructions, WhatTheKernelsAskForIsNamed) {
#if defined(__x86_64__)
  if (has_avx2()) {
    EXPECT_TRUE(named("avx2") && named("fma"));
  }
  EXPECT_LE(has_avx512(), named("avx512f"));
  EXPECT_EQ(has_avx512_vnni(), has_avx512() && named("avx512vnni"));
  EXPECT_EQ(has_avx512_bf16(), has_avx512() && named("avx512bf16"));
  if (why_not_amx().empty()) {
    EXPECT_TRUE(named("amx-tile") && named("amx-bf16"));
  }
#else
  EXPECT_TRUE(named("neon"));
#endif
}

#if defined(__x86_64__) && defined(__linux__)
TEST(Instructions, TheMakerIsTheOneThatLinuxNames) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("vendor_id", 0) != 0) continue;
  ASSERT_FALSE(line.empty());
  EXPECT_EQ(of_intel_with_avx512(), has_avx512() && line.find("GenuineIntel") != std::string::npos);
}
#endif

}  // namespace
}  // namespace motet
