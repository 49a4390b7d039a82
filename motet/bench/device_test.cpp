// The benchmarks on a device that is not the CPU.
#include <gtest/gtest.h>

#include <fstream>

#include "motet/bench/infer_bench.h"
#include "motet/bench/memory_bench.h"
#include "motet/bench/passes.h"
#include "motet/bench/train_bench.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using testing::other_counts;
using testing::other_device;

TEST(BenchDevice, TheClockWaitsForTheDeviceBeforeAndAfter) {
  const at::Device device = other_device();
  const int64_t before = other_counts().synchronize;
  int64_t at_call = 0;
  timed([&] { at_call = other_counts().synchronize; }, device);
  EXPECT_EQ(at_call, before + 1);
  EXPECT_EQ(other_counts().synchronize, before + 2);
  interleaved({[] {}, [] {}}, {.warmups = 0, .repeats = 3}, device);
  EXPECT_EQ(other_counts().synchronize, before + 2 + 2 * 6);
}

TEST(BenchDevice, OperandsAreDrawnOnTheCpuAndMoved) {
  for (const BenchedOperator& row : benched_operators()) {
    SCOPED_TRACE(row.name);
    const Arguments here = as_leaves(row.arguments({1, 6, 4, 8}), at::kFloat),
                    there = as_leaves(row.arguments({1, 6, 4, 8}), at::kFloat, other_device());
    for (int i = 0; i < kNumInputs; ++i) {
      if (!here.input[i].defined()) continue;
      EXPECT_EQ(there.input[i].device(), other_device());
      EXPECT_TRUE(there.input[i].requires_grad());
      EXPECT_TRUE(there.input[i].to(at::kCPU).equal(here.input[i]));
    }
  }
}

TEST(BenchDevice, EveryOperatorIsCheckedAndTimedThere) {
  for (const std::string& name : benched_names()) {
    SCOPED_TRACE(name);
    const auto times = measure_attention({name, {2, 16, 4, 8}}, {.warmups = 0, .repeats = 1}, other_device());
    ASSERT_EQ(times.size(), 2u);
    for (const AttentionTimes& t : times) {
      EXPECT_EQ(t.kernel, "blocked");
      EXPECT_GT(t.ours.wall, 0);
      EXPECT_GT(t.sdpa.wall, 0);
    }
  }
}

// The backend computes in memory of the host, so that beside the tensors there is next to nothing on the device. What
// the thread of autograd drops late is of the pass that warms up, of 64 tokens.
TEST(BenchDevice, MemoryIsThatOfTheDevice) {
  const MemoryUse use = measure_memory({"dcmha", {1, 512, 4, 8}}, other_device());
  EXPECT_GT(use.tensors, 8 * 512 * 4 * 8 * 4);
  EXPECT_NEAR(static_cast<double>(use.beyond), 0, static_cast<double>(use.tensors) / 4);
}

TEST(BenchDevice, EveryMechanismDecodesThere) {
  InferBench bench{.cases = {{true, 5, 0}, {false, 3, 4}}, .turns = {.warmups = 0, .repeats = 2}};
  for (const char* name : {"softmax", "dcmha", "differential", "coca", "key_size", "talking_heads"}) {
    Model model(testing::tiny({}, {{"mechanism", name}}), other_device());
    model->initialize(1);
    bench.models.push_back({name, model});
  }
  const int64_t waits = other_counts().synchronize;
  for (const InferResult& result : measure_inference(bench)) {
    EXPECT_EQ(result.rates.size(), 2u) << result.name;
    EXPECT_GT(result.cache_bytes, 0) << result.name;
  }
  const auto timings = static_cast<int64_t>(2 * bench.models.size() * bench.cases.size() * 2);
  EXPECT_GE(other_counts().synchronize - waits, timings);
}

// A script in Python's place keeps what the rival is asked for.
TEST(BenchDevice, TheRivalTrainsWhereWeDo) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "python") << "#!/bin/sh\nread line; echo \"$line\" > " << folder / "asked"
                                   << "; echo '{\"error\": \"seen\"}'\n";
  std::filesystem::permissions(folder / "python", std::filesystem::perms::owner_all);
  TrainBench bench{.python = folder / "python", .device = at::kCPU};
  bench.shape.hidden = 16, bench.shape.layers = 1, bench.shape.heads = 2, bench.shape.T = 8;
  bench.contenders = {{"mha", {{"mechanism", "softmax"}, {"num_heads", 2}}}};
  EXPECT_NE(testing::message_of<Error>([&] { measure_training(bench); }).find("seen"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "asked"))["device"], "cpu");
}

}  // namespace
}  // namespace motet
