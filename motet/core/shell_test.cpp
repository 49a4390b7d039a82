#include "motet/core/shell.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

TEST(ShellQuoted, OnlyWhatAShellWouldReadOtherwiseStandsBetweenQuotes) {
  EXPECT_EQ(shell_quoted("runs/a-1_b=2,c:d.e%f@g+"), "runs/a-1_b=2,c:d.e%f@g+");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b$c"), "'a b$c'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace motet
