#include "motet/core/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

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

// A variable as it was before, at the end.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) old_ = value;
  }
  ~Variable() { set(old_); }
  void set(const std::optional<std::string>& value) { value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Log, ColorsNeedATerminalThatHasThemAndNoWordAgainst) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "there are no terminals here";
  Variable term("TERM"), no_color("NO_COLOR");
  term.set("xterm"), no_color.set({});
  EXPECT_TRUE(color_allowed(terminal));
  no_color.set("");  // no-color.org: only when it is not empty
  EXPECT_TRUE(color_allowed(terminal));
  no_color.set("1");
  EXPECT_FALSE(color_allowed(terminal));
  no_color.set({}), term.set("dumb");
  EXPECT_FALSE(color_allowed(terminal));
  ::close(terminal);
}

}  // namespace
}  // namespace motet
