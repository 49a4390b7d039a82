#include "motet/core/instructions.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace motet
