// `motet bench` as it is asked for, on a device that is not the CPU.
#include <gtest/gtest.h>

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
  EXPECT_EQ(infer.size(), 2u) << "one model in float32, and no rival: they compute on the CPU";
}

TEST(BenchCommand, WhatIsOfTheCpuAloneIsRefusedElsewhere) {
  EXPECT_EQ(refusal("attention", {{"goals", true}, {"shape", "T=7"}}),
            "--device: host_copy with --goals, want cpu: the goals are those of the fused CPU kernels");
  EXPECT_EQ(refusal("infer", {{"rivals", "llama_cpp"}}),
            "--rivals: llama_cpp on host_copy:0, want none or --device cpu: they compute on the CPU");
  EXPECT_EQ(refusal("infer", {{"weights", "int8"}}), "--weights: int8 on host_copy:0, want float32 or --device cpu");
}

}  // namespace
}  // namespace motet
