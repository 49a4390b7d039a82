#include "motet/ops/device.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/ops/peak.h"

namespace motet {
namespace {

using testing::message_of;

std::string refusal(const char* name) {
  return message_of<UsageError>([=] { parse_device(name); });
}

TEST(ParseDevice, NamesAreThoseOfTorch) {
  EXPECT_EQ(parse_device("cpu"), at::Device(at::kCPU));
  EXPECT_EQ(parse_device("auto").is_cpu(), !at::hasCUDA());
  EXPECT_EQ(refusal("gpu").substr(0, 22), "unknown device 'gpu': ");
  EXPECT_EQ(refusal("cuda:x"), "device: 'cuda:x', want a number behind cuda:, as in cuda:0");
  EXPECT_EQ(refusal("cuda:0x"), "device: 'cuda:0x', want a number behind cuda:, as in cuda:0");
  EXPECT_EQ(refusal("cuda:-1"), "device: 'cuda:-1', want a number behind cuda:, as in cuda:0");
  EXPECT_EQ(refusal("cuda:"), "device: 'cuda:', want a number behind cuda:, as in cuda:0");
}

TEST(ParseDevice, WithoutAGpuCudaIsRefusedAtOnce) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  for (const char* name : {"cuda", "cuda:0"})
    EXPECT_NE(refusal(name).find("want cpu"), std::string::npos) << refusal(name);
}

TEST(IdsTensor, IsARowOnTheDevice) {
  const std::vector<int32_t> ids{3, 1, 4};
  EXPECT_TRUE(at::equal(ids_tensor(std::span(ids)), at::tensor({3, 1, 4}, at::kLong).view({1, 3})));
  EXPECT_EQ(ids_tensor(std::span(ids), at::kMeta).sizes(), (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(ids_tensor(std::span(ids), at::kMeta).is_meta());
}

TEST(Memory, OfTheCpuIsThatOfTheProcess) {
  constexpr int64_t kBytes = 64 << 20;
  ASSERT_TRUE(reset_peak_memory(at::kCPU));
  const int64_t before = used_memory(at::kCPU);
  at::ones({kBytes}, at::kByte);  // gone at once
  EXPECT_GE(peak_memory(at::kCPU), before + kBytes / 2);
  EXPECT_GT(free_memory(at::kCPU).value_or(0), 0);
}

TEST(Memory, OfADeviceWithoutAnyIsUnknown) {
  EXPECT_EQ(used_memory(at::kMeta), 0);
  EXPECT_EQ(peak_memory(at::kMeta), 0);
  EXPECT_FALSE(reset_peak_memory(at::kMeta));
  EXPECT_EQ(free_memory(at::kMeta), std::nullopt);
}

TEST(PeakFlops, IsANumberOfOperationsThatAMachineCanMake) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const double peak = peak_flops_per_second(type, at::kCPU);
    EXPECT_GT(peak, 1e7) << type;
    EXPECT_LT(peak, 1e15) << type;
  }
}

std::atomic<int> products = 0;

// The first product takes what that of a GPU may, whose library it loads: longer than all the time there is.
std::unique_ptr<at::ObserverContext> late_once(const at::RecordFunction& of) {
  if (std::string_view(of.name()) == "aten::mm" && products++ == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return nullptr;
}

TEST(PeakFlops, WhatIsLoadedByTheFirstProductDoesNotCount) {
  const at::CallbackHandle late =
      at::addGlobalCallback(at::RecordFunctionCallback(late_once).scopes({at::RecordScope::FUNCTION}));
  peak_flops_per_second(at::kFloat, at::kCPU);
  at::removeCallback(late);
  EXPECT_GE(products, 2) << "the late one is all that was measured";
}

TEST(ComputeCapability, IsOfAGpuAlone) {
  EXPECT_EQ(compute_capability(at::kCPU), 0);
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  EXPECT_GE(compute_capability(at::Device(at::kCUDA, 0)), 50);
  EXPECT_LT(compute_capability(at::Device(at::kCUDA, 0)), 1000);
}

TEST(Synchronize, TheCpuHasNothingToWaitFor) {
  EXPECT_NO_THROW(synchronize(at::kCPU));
  EXPECT_NO_THROW(synchronize(at::kMeta));
}

}  // namespace
}  // namespace motet
