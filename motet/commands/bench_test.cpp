// `motet bench` as it is asked for, on a device that is not the CPU.
#include <gtest/gtest.h>

#include "motet/commands/bench_table.h"
#include "motet/commands/commands.h"
#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr const char* kTiny = "hidden=16,layers=1,heads=2,kv_heads=2,vocab=1100,prompt=16,generate=4,depth=0";

json request(const char* what, const json& more) {
  json made{{"what", what}, {"device", testing::other_name()}, {"output", "json"}, {"threads", 1}};
  made.update(more);
  return made;
}

json rows(const char* what, const json& more) {
  ::testing::internal::CaptureStdout();
  std::string failure;
  try {
    run_bench(request(what, more));
  } catch (const std::exception& e) {  // else what the other tests print would be lost
    failure = e.what();
  }
  const std::string shown = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(failure, "");
  return json::parse(shown, nullptr, false);
}

std::string refusal(const char* what, const json& more) {
  return testing::message_of<UsageError>([&] { run_bench(request(what, more)); });
}

TEST(BenchCommand, EveryFigureNamesTheDevice) {
  const json attention = rows("attention", {{"shape", "T=16,H=2,D=8,mechanism=mha"}, {"repeats", 5}}),
             memory = rows("memory", {{"shape", "T=16,H=2,D=8,mechanism=mha"}}),
             infer = rows("infer", {{"shape", kTiny}, {"repeats", 2}});
  for (const json* all : {&attention, &memory, &infer})
    for (const json& row : *all) EXPECT_EQ(row["device"], "host_copy:0") << row;
  ASSERT_TRUE(attention.is_array() && !attention.empty());
  EXPECT_EQ(attention[0]["kernel"], "blocked");
  EXPECT_EQ(infer.size(), 4u) << "a model in float32 and in 8 bits, and no rival: they compute on the CPU";
}

TEST(BenchCommand, WhatIsOfTheCpuAloneIsRefusedElsewhere) {
  EXPECT_EQ(refusal("attention", {{"goals", true}, {"shape", "T=7"}}),
            "--shape: no goal has T = 7, want one of 2048, 4096, 8192")
      << "the goals of another device are those of a GPU";
  EXPECT_EQ(refusal("infer", {{"rivals", "llama_cpp"}}),
            "--rivals: llama_cpp on host_copy:0, want none or --device cpu: they compute on the CPU");
}

TEST(BenchCommand, WhatIsNotOfABenchmarkIsRefused) {
  EXPECT_EQ(refusal("memory", {{"dtype", "bfloat16"}}), "--dtype is given for memory, want it for attention or train");
  EXPECT_EQ(refusal("infer", {{"goals", true}}), "--goals is given for infer, want it for attention or train");
  EXPECT_EQ(refusal("train", {{"goals", true}, {"dtype", "bfloat16"}}),
            "--dtype is given with --goals, which have their own");
  EXPECT_EQ(refusal("train", {{"goals", true}, {"mechanisms", "mha"}}),
            "--mechanisms is given with --goals, which have their own");
  EXPECT_EQ(refusal("attention", {{"dtype", "float64"}}),
            "unknown --dtype 'float64': nearest is 'float32'; known: float32, bfloat16, float16");
}

TEST(BenchCommand, TheDtypeIsOfTheArgumentsAndInTheFigures) {
  for (const json& row :
       rows("attention", {{"shape", "T=16,H=2,D=8,mechanism=mha"}, {"repeats", 5}, {"dtype", "bfloat16"}}))
    EXPECT_EQ(row["dtype"], "bfloat16");
}

Goal measured(const char* what, double limit, double of, bool at_least = false) {
  Goal goal{.what = what, .of = "a", .over = "b", .limit = limit, .at_least = at_least, .wall = true};
  goal.of_time = {of, 5}, goal.over_time = {1, 5};
  return goal;
}

// What show_goals prints, and its exit code.
std::pair<std::string, int> shown(const std::vector<Goal>& goals, const std::string& format) {
  ::testing::internal::CaptureStdout();
  const int code = show_goals(goals, "Note.\n", {.threads = 1, .repeats = 5}, {{"output", format}, {"command", "me"}});
  return {::testing::internal::GetCapturedStdout(), code};
}

TEST(ShownGoals, SayRatioLimitStretchAndWhyThereIsNone) {
  Goal missing = measured("missing", 2, 1), beside = measured("beside", 0, 3);
  missing.why_not = "cuDNN: none";
  Goal hoped = measured("hoped", 1.6, 1.5);
  hoped.stretch = 1.3;
  const auto [text, code] = shown({hoped, beside, missing}, "json");
  EXPECT_EQ(code, 1) << "a goal with a limit that was not measured";
  const json all = json::parse(text);
  EXPECT_EQ(all[0]["ratio"], 1.5);
  EXPECT_EQ(all[0]["stretch"], 1.3);
  EXPECT_EQ(all[0]["reached"], true);
  EXPECT_EQ(all[0]["not_measured"], nullptr);
  EXPECT_EQ(all[0]["command"], "me");
  EXPECT_EQ(all[1]["limit"], nullptr);
  EXPECT_EQ(all[1]["reached"], true);
  EXPECT_EQ(all[2]["ratio"], nullptr);
  EXPECT_EQ(all[2]["reached"], false);
  EXPECT_EQ(all[2]["not_measured"], "cuDNN: none");
  const std::string table = shown({hoped, missing}, "table").first;
  EXPECT_NE(table.find("missing: not measured: cuDNN: none\n"), std::string::npos) << table;
  EXPECT_NE(table.find("Note.\n"), std::string::npos);
}

TEST(ShownGoals, EndWithOneWhereAGoalFallsShort) {
  EXPECT_EQ(shown({measured("a", 1, 1), measured("b", 0, 9)}, "json").second, 0);
  EXPECT_EQ(shown({measured("a", 1, 1), measured("b", 1, 2)}, "json").second, 1);
  EXPECT_EQ(shown({measured("a", 2, 2, true)}, "json").second, 0);
  EXPECT_EQ(shown({measured("a", 2, 1, true)}, "json").second, 1);
}

}  // namespace
}  // namespace motet
