#include "motet/ops/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "motet/core/error.h"
#include "motet/ops/torch.h"

namespace motet {
namespace {

template <class Call>
std::string told_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return told(error);
  }
  return "nothing";
}

TEST(Told, OneLineWithoutTorchsStack) {
  EXPECT_EQ(told_of([] { TORCH_CHECK_VALUE(false, "x is 3\nwant 4"); }), "x is 3");
  EXPECT_EQ(told_of([] { throw std::runtime_error("a\nb"); }), "a");
  EXPECT_EQ(told_of([] { fail("two\nlines of our own"); }), "two\nlines of our own");
}

TEST(Told, MemoryThatRanOutSaysHowMuchAndWhatHelps) {
  const std::string advice = " does not fit, want a smaller batch, context or model";
  EXPECT_EQ(told_of([] { at::empty({int64_t{1} << 60}); }),
            "out of memory: a tensor of 4611686018427387904 bytes" + advice);
  EXPECT_EQ(told_of([] {
              TORCH_CHECK_WITH(
                  OutOfMemoryError, false,
                  "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
                  "of which 1.50 GiB is free. Process 7 has 77.00 GiB memory in use.");
            }),
            "out of memory of the GPU: a tensor of 2.00 GiB" + advice);
  EXPECT_EQ(told_of([] { throw std::bad_alloc(); }), "out of memory");
}

TEST(Told, FilesThatCannotBeUsedByName) {
  EXPECT_EQ(told_of([] { std::filesystem::create_directory("/no such/folder"); }),
            "cannot use '/no such/folder': No such file or directory");
}

}  // namespace
}  // namespace motet
