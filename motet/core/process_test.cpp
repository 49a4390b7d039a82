#include "motet/core/process.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

namespace motet {
namespace {

TEST(Process, ThePeakRemembersMemoryThatWasFreed) {
  constexpr int64_t kBytes = 64 << 20;
  if (!reset_peak_resident()) GTEST_SKIP() << "the kernel refuses to reset the peak";
  const int64_t before = peak_resident_bytes();
  {
    const std::unique_ptr<char[]> block(new char[kBytes]);
    char* volatile seen = block.get();  // else a compiler may leave out memory that nobody reads
    std::memset(seen, 1, kBytes);
    EXPECT_GE(resident_bytes(), kBytes / 2);
  }
  EXPECT_GE(peak_resident_bytes() - before, kBytes / 2);
}

TEST(Process, AKilobyteOfTheKernelIsOf1024Bytes) {
  constexpr int64_t kBytes = 128 << 20;
  void* const block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  const int64_t before = resident_bytes();
  for (int64_t i = 0; i < kBytes; i += 4096) static_cast<volatile char*>(block)[i] = 1;
  EXPECT_NEAR(static_cast<double>(resident_bytes() - before), kBytes, 0.012 * kBytes);
  ::munmap(block, kBytes);
}

TEST(Process, ThereIsAProcessor) { EXPECT_GE(processor_count(), 1); }

}  // namespace
}  // namespace motet
