// The emulation finds what a GPU would not tell: each test is a kernel with one fault, and the same without it.
#include <gtest/gtest.h>

#include "motet/cuda/device.h"

namespace motet::cuda {
namespace {

constexpr int kThreads = 64;

template <class Kernel>
std::string fault_of(const Kernel& kernel, int64_t shared_bytes = 1024) {
  emulated::launch({1, 1, 1}, kThreads, shared_bytes, kernel);
  return emulated::take_fault();
}

void exchange(bool with_barrier) {
  const Shared<float> x{0};
  x.set(threadIdx.x, 1);
  if (with_barrier) block_sync();
  x.get(kThreads - 1 - threadIdx.x);
}

TEST(Emulation, ReadBehindAnotherWarpsWriteNeedsABarrier) {
  EXPECT_EQ(fault_of([] { exchange(true); }), "");
  EXPECT_NE(fault_of([] { exchange(false); }).find("races with thread"), std::string::npos);
}

// In either order of the warps the read comes first, and the numbers are right.
TEST(Emulation, WriteBehindAnotherWarpsReadNeedsABarrier) {
  const auto kernel = [](bool with_barrier) {
    const Shared<float> x{0};
    if (threadIdx.x == 31) x.set(0, 1);
    block_sync();
    if (threadIdx.x == 31) {
      EXPECT_EQ(x.get(0), 1);
    }
    if (with_barrier) block_sync();
    if (threadIdx.x == 32) x.set(0, 2);
  };
  for (const bool reversed : {false, true}) {
    emulated::reverse_order(reversed);
    EXPECT_EQ(fault_of([&] { kernel(true); }), "");
    EXPECT_NE(fault_of([&] { kernel(false); }).find("a read of warp 0"), std::string::npos);
  }
  emulated::reverse_order(false);
}

TEST(Emulation, LanesOfAWarpNeedAWarpWideInstructionBetweenThem) {
  const auto kernel = [](bool with_sync) {
    const Shared<float> x{0};
    x.set(threadIdx.x, 1);
    if (with_sync) warp_sync();
    x.get(threadIdx.x ^ 1);
  };
  EXPECT_EQ(fault_of([&] { kernel(true); }), "");
  EXPECT_NE(fault_of([&] { kernel(false); }).find("races with thread"), std::string::npos);
}

TEST(Emulation, SharedMemoryEndsWhereItEnds) {
  EXPECT_EQ(fault_of([] { Shared<float>{0}.set(threadIdx.x, 1); }, kThreads * 4), "");
  EXPECT_EQ(fault_of([] { Shared<float>{4}.set(threadIdx.x, 1); }, kThreads * 4),
            "an access to 4 bytes at byte 256 of 256 of shared memory in block (0,0), thread 63");
}

TEST(Emulation, VectorsLieAtMultiplesOfTheirSize) {
  EXPECT_EQ(fault_of([] { Shared<float>{0}.get4(4 * threadIdx.x); }), "");
  EXPECT_NE(fault_of([] { Shared<float>{0}.get4(4 * threadIdx.x + 1); }), "");
}

TEST(Emulation, VectorsOfTheDevicesMemoryLieAtMultiplesOf16Bytes) {
  alignas(16) std::array<float, 8> numbers{1, 2, 3, 4, 5, 6, 7, 8};
  const auto kernel = [&](int first) {
    float x[4];
    read_vector(&numbers[first], x);
    EXPECT_EQ(x[3], numbers[first + 3]);
    write_vector(&numbers[first], x);
    write16(&numbers[first], read16(&numbers[first]));
  };
  EXPECT_EQ(fault_of([&] { kernel(4); }), "");
  EXPECT_EQ(fault_of([&] { kernel(2); }).substr(0, 46), "a vector of the device's memory is not aligned");
  EXPECT_EQ(numbers[7], 8);
}

TEST(Emulation, ABarrierThatSomeThreadsMissIsAFault) {
  EXPECT_EQ(fault_of([] {
              if (threadIdx.x != 7) block_sync();
            }),
            "threads wait for others for ever in block (0,0), thread 63");
}

TEST(Emulation, SharedMemoryBeginsAsNaN) {
  bool all = true;
  EXPECT_EQ(fault_of([&] { all &= std::isnan(Shared<float>{0}.get(threadIdx.x)); }), "");
  EXPECT_TRUE(all);
}

TEST(Emulation, BarriersCountTheThreadsThatSayTrue) {
  int counted = 0;
  EXPECT_EQ(fault_of([&] { counted = block_count(threadIdx.x % 3 == 0); }), "");
  EXPECT_EQ(counted, 22);
}

// Copies happen as late as they may: whoever does not wait finds NaN, and a race.
TEST(Emulation, CopiesAreWaitedFor) {
  constexpr uint32_t kBarrier = 512;
  const std::array<float, 4> from{1, 2, 3, 4};
  const auto kernel = [&](bool waits, uint32_t announced) {
    if (threadIdx.x == 0) arrivals_init(kBarrier);
    block_sync();
    if (threadIdx.x == 0) {
      arrivals_expect(kBarrier, announced);
      copy_bytes(0, from.data(), 16, kBarrier);
    }
    if (waits) arrivals_wait(kBarrier, 0);
    const float x = Shared<float>{0}.get(2);
    if (waits) {
      EXPECT_EQ(x, 3);
    }
    arrivals_wait(kBarrier, 0);
  };
  EXPECT_EQ(fault_of([&] { kernel(true, 16); }), "");
  EXPECT_NE(fault_of([&] { kernel(false, 16); }).find("races with"), std::string::npos);
  EXPECT_NE(fault_of([&] { kernel(true, 32); }).find("other bytes than were announced"), std::string::npos);
}

TEST(Emulation, ABarrierOfSomeThreadsOrdersThem) {
  const auto kernel = [](bool with_barrier) {
    const Shared<float> x{0};
    if (threadIdx.x < 256) {
      x.set(threadIdx.x, 1);
      if (with_barrier) sync_256();
      x.get(255 - threadIdx.x);
    }
  };
  const auto fault = [&](bool with_barrier) {
    emulated::launch({1, 1, 1}, 384, 2048, [&] { kernel(with_barrier); });
    return emulated::take_fault();
  };
  EXPECT_EQ(fault(true), "");
  EXPECT_NE(fault(false).find("races with"), std::string::npos);
}

TEST(Emulation, ABlockMayNotTakeMoreThanThereIs) {
  EXPECT_NE(fault_of([] {}, shared_limit() + 1), "");
}

}  // namespace
}  // namespace motet::cuda
