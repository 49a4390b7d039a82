#include "motet/bench/rival.h"

#include <gtest/gtest.h>

#include <fstream>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

// A shell script in the rival's place.
class Rival : public ::testing::Test {
 protected:
  RivalProgram program(const std::string& script) {
    std::ofstream(folder_ / "rival.sh") << script;
    return {"/bin/sh", folder_ / "rival.sh"};
  }
  std::string failure(const std::string& script) {
    return message_of<Error>([&] { RivalProcess(program(script), request_).step(); });
  }

  testing::TemporaryFolder folder_;
  nlohmann::json request_ = {{"threads", 1}};
};

TEST_F(Rival, AnswersTheRequestAndEachStep) {
  RivalProcess rival(program(R"(read line; echo '{"parameters": 7}'
    while read line; do echo '{"seconds": 0.25, "cpu_seconds": 0.5}'; done)"),
                     request_);
  EXPECT_EQ(rival.facts()["parameters"], 7);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rival.step().cpu, 0.5);
}

TEST_F(Rival, GetsTheThreadsInItsEnvironment) {
  request_["threads"] = 3;
  EXPECT_EQ(RivalProcess(program(R"(read line; echo "{\"threads\": $OMP_NUM_THREADS}")"), request_).facts()["threads"],
            3);
}

TEST_F(Rival, IsToldWhatAStepIs) {
  RivalProcess rival(program(R"(read line; echo '{}'
    while read line; do echo "{\"seconds\": 1, \"cpu_seconds\": ${#line}}"; done)"),
                     request_);
  EXPECT_EQ(rival.step().cpu, std::string("step").size());
  EXPECT_EQ(rival.step("pp 4096").cpu, std::string("step pp 4096").size());
}

TEST_F(Rival, KeepsItsHeapOnlyWhenItIsAsked) {
  const char* script = R"(read line; echo "{\"kept\": ${MALLOC_TRIM_THRESHOLD_:-0}}")";
  EXPECT_EQ(RivalProcess(program(script), request_).facts()["kept"], 0);
  request_["retain_heap"] = true;
  EXPECT_GT(RivalProcess(program(script), request_).facts()["kept"], 1e9);
}

TEST_F(Rival, ItsOwnErrorIsShown) {
  EXPECT_NE(failure(R"(read line; echo '{"error": "no torch"}')").find("rival.sh: no torch"), std::string::npos);
}

TEST_F(Rival, AnEarlyEndIsAnError) {
  EXPECT_NE(failure("exit 1").find("the process ended"), std::string::npos);
  EXPECT_NE(failure("read line; echo '{}'").find("the process ended"), std::string::npos);
}

TEST_F(Rival, AnAnswerThatIsNoObjectIsAnError) {
  EXPECT_NE(failure("read line; echo hello").find("answered 'hello', want one JSON object"), std::string::npos);
  EXPECT_NE(failure("while read line; do echo '{}'; done").find("has no number seconds"), std::string::npos);
}

TEST_F(Rival, AProgramThatDoesNotStartIsAnError) {
  EXPECT_EQ(message_of<Error>([&] { RivalProcess({folder_ / "none", "rival.py"}, request_); }),
            "cannot start " + quote(folder_ / "none") + ": No such file or directory");
}

TEST_F(Rival, ASourceTreeWithoutItsPythonIsAnError) {
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directories(folder_ / "bench");
  std::ofstream(folder_ / "bench/rival.py") << "";
  std::filesystem::current_path(folder_.path());
  const std::string missing = message_of<Error>([] { find_rival("rival.py", ""); });
  const RivalProgram found = find_rival("rival.py", "python3");
  std::filesystem::current_path(before);
  EXPECT_NE(missing.find(".venv/bin/python does not exist"), std::string::npos) << missing;
  EXPECT_EQ(found.python, "python3");
  EXPECT_TRUE(found.script.ends_with("bench/rival.py"));
}

}  // namespace
}  // namespace motet
