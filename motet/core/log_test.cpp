#include "motet/core/log.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

std::string captured(void (*action)()) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, LinesGoToStderrAndWarningsAreMarked) {
  if (log_level() != LogLevel::info) GTEST_SKIP() << "MOTET_LOG is set";
  EXPECT_EQ(captured([] { log_info("one"); }), "one\n");
  EXPECT_EQ(captured([] { log_warn("two"); }), "motet: warning: two\n");
  EXPECT_EQ(captured([] { log_debug("three"); }), "");
}

TEST(Log, NoColorInAFile) {
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(color_allowed(2));
  ::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace motet
