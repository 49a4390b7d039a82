#include "motet/core/environment.h"

#include <cstdlib>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Environment, AnotherVariableOfOursIsToldWithTheNearest) {
  ::setenv("MOTET_THREAD", "1", 1);
  const std::vector<std::string> warnings = environment_warnings();
  ::unsetenv("MOTET_THREAD");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "unknown environment variable 'MOTET_THREAD': nearest is 'MOTET_THREADS'; known: MOTET_TORCH_DIR, "
            "MOTET_TORCH_BUILD, MOTET_CUDA_ARCHITECTURES, MOTET_KERNEL, MOTET_THREADS, MOTET_LOG, MOTET_API_KEY");
}

TEST(Environment, OursAndForeignNamesPass) {
  ::setenv("MOTETTE", "1", 1);
  EXPECT_TRUE(environment_warnings().empty());
  ::unsetenv("MOTETTE");
}

// In a process of its own: the variables are read once.
TEST(Environment, AnEmptyVariableIsNotSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto code = [] {
    ::setenv("MOTET_KERNEL", "", 1);
    ::setenv("MOTET_THREADS", "3", 1);
    const std::string* threads = environment("MOTET_THREADS");
    return (environment("MOTET_KERNEL") ? 1 : 0) + (threads && *threads == "3" ? 0 : 2);
  };
  EXPECT_EXIT(::_exit(code()), ::testing::ExitedWithCode(0), "");
}

TEST(Environment, ReadingAnUnknownVariableIsAnError) {
  EXPECT_EQ(message_of<Error>([] { environment("MOTET_X"); }).substr(0, 30), "unknown environment variable '");
}

TEST(Environment, EachOfTheFiveCanBeRead) {
  for (const std::string& name : environment_names()) EXPECT_NO_THROW(environment(name));
}

}  // namespace
}  // namespace motet
