#include "motet/ops/graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define MOTET_RECORDS_ANY
#endif
#include <gtest/gtest.h>

#include "motet/core/testing.h"
#include "motet/ops/device.h"
#include "motet/ops/other_device.h"
#include "motet/ops/other_record.h"

namespace motet {
namespace {

using testing::other_device;

// What the tests' device records now.
struct Record {
  std::vector<std::function<void()>> work, spoils;
};
thread_local Record* record = nullptr;

#ifdef MOTET_RECORDS_ANY
struct OtherGraph final : at::GraphImplInterface {
  explicit OtherGraph(const at::GraphImplArgs&) {}
  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override { record = &own; }
  void capture_end() override {
    record = nullptr;
    for (auto spoil = own.spoils.rbegin(); spoil != own.spoils.rend(); ++spoil) (*spoil)();
  }
  void instantiate() override {}
  void replay() override {
    for (const auto& again : own.work) again();
  }
  void reset() override { own = {}; }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}
  Record own;
};

const at::RegistererGraphImplRegistry registered("HOST_COPY", at::GraphImplRegistry(),
                                                 at::RegistererGraphImplRegistry::DefaultCreator<OtherGraph>);
#endif

TEST(Graph, IsOfADeviceThatRecords) {
  EXPECT_EQ(Graph::why_not(at::kCPU), "a CPU needs no record");
  EXPECT_NE(Graph::why_not(at::Device(at::kXPU, 0)), "");
  EXPECT_THROW(Graph(at::kCPU, [] {}), c10::ValueError);
#ifdef MOTET_RECORDS_ANY
  EXPECT_EQ(Graph::why_not(other_device()), "");
#endif
}

TEST(Graph, ReplaysWithWhatLiesInItsInputsThen) {
  for (const at::Device device : testing::recording_devices()) {
    const Tensor x = at::ones({3}).to(device), sum = at::zeros({3}).to(device);
    Tensor twice;
    Graph graph(device, [&] {
      twice = x * 2;
      sum.add_(twice);
    });
    EXPECT_TRUE(sum.cpu().equal(at::full({3}, 2.f))) << "once, and a record does nothing";
    for (const float value : {1.f, 5.f}) {
      x.fill_(value);
      graph.replay();
      EXPECT_TRUE(twice.cpu().equal(at::full({3}, 2 * value)));
    }
    EXPECT_TRUE(sum.cpu().equal(at::full({3}, 14.f)));
  }
}

TEST(Graph, KeepsNumbersOfTheHostAndRefusesWaits) {
  for (const at::Device device : testing::recording_devices()) {
    const Tensor x = at::arange(4, at::kFloat).to(device);
    int64_t row = 1;
    Tensor picked;
    Graph graph(device, [&] { picked = x.narrow(0, row, 1) + static_cast<double>(row); });
    row = 2;
    graph.replay();
    EXPECT_EQ(picked.cpu().item<float>(), 2) << "of the row that it was";
    EXPECT_THROW(Graph(device, [&] { x.sum().item<float>(); }), c10::Error);
    EXPECT_THROW(Graph(device, [&] { x.cpu(); }), c10::Error);
    EXPECT_THROW(Graph(device, [&] { x.copy_(at::arange(4, at::kFloat)); }), c10::Error);
    EXPECT_FALSE(testing::other_records()) << "what failed has ended";
    EXPECT_EQ(x.cpu().sum().item<float>(), 6);
    graph.replay();
    Graph next(device, [&] { picked = x * 2; });
    next.replay();
    EXPECT_EQ(picked.cpu().sum().item<float>(), 12) << "and another can begin";
  }
}

TEST(Graph, WhatMovesIntoATensorReachesAReplay) {
  for (const at::Device device : testing::recording_devices()) {
    const Tensor numbers = at::zeros({2}, at::kLong).to(device);
    Tensor sum;
    Graph graph(device, [&] { sum = numbers.sum(); });
    const std::vector<int64_t> values{3, 4};
    const testing::OtherCounts before = testing::other_counts();
    move_to(numbers, values);
    const testing::OtherCounts after = testing::other_counts();
    EXPECT_EQ(after.without_wait - before.without_wait, !device.is_cuda());
    EXPECT_EQ(after.pinned - before.pinned, !at::hasCUDA()) << "memory is pinned for a GPU where there is one";
    graph.replay();
    EXPECT_EQ(sum.cpu().item<int64_t>(), 7);
    EXPECT_THROW(move_to(numbers, std::vector<int64_t>{1}), c10::ValueError);
  }
}

}  // namespace

namespace testing {

std::vector<at::Device> recording_devices() {
  std::vector<at::Device> all;
  for (const at::Device device : {other_device(), at::Device(at::kCUDA, 0)})
    if (Graph::why_not(device).empty() && (!device.is_cuda() || at::hasCUDA())) all.push_back(device);
  return all;
}

bool other_records() { return record; }

void add_to_record(std::function<void()> again, std::function<void()> spoil) {
  record->work.push_back(std::move(again));
  record->spoils.push_back(std::move(spoil));
}

}  // namespace testing
}  // namespace motet
