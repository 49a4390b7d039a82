#include <functional>

#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

// A slice of a tensor may begin where no vector does.
TEST_F(Step, NumbersThatBeginAnywhereAreTaken) {
  constexpr int64_t kRows = 6, kColumns = 64, kCount = kRows * kColumns;
  const std::vector<int64_t> targets(kRows, 5);
  const std::vector<float> table(kRows * kColumns / 2, 0.6f);
  const Typed one = numbers(kBrain, kCount);
  Typed floats(kFloat, 3 * kRows);
  float* const more = floats.floats.data();
  const std::function<const char*(const void*, void*)> calls[] = {
      [&](const void* x, void* y) {
        return kernels_.rms_norm({kRows, kColumns, {x, kBrain, kColumns}, x, kBrain, kBrain}, y, more, none_);
      },
      [&](const void* x, void* y) {
        const HeadRotation r{1,      kRows,  1,        kColumns, kColumns / 2, x,
                             kBrain, kCount, kColumns, kColumns, table.data(), table.data()};
        return kernels_.rotate(r, y, none_);
      },
      [&](const void* x, void* y) {
        return kernels_.silu_times({kRows, kColumns, {x, kBrain, kColumns}, {x, kBrain, kColumns}, kBrain}, y, none_);
      },
      [&](const void* x, void* y) {
        const TokenLoss l{kRows, kColumns, {x, kBrain, kColumns}, kRows, kCount, targets.data()};
        const char* const error = kernels_.token_loss(l, {more, more + kRows}, none_);
        return error ? error : kernels_.token_loss_backward(l, {more, more + kRows}, y, none_);
      },
      [&](const void* x, void* y) {
        DcmhaParts parts;
        parts.down[0] = y, parts.up[0] = static_cast<uint16_t*>(y) + kCount / 2;
        return kernels_.dcmha_split({kRows, 1, 2, 16, x, kBrain}, parts, none_);
      }};
  for (const auto& call : calls) {
    std::vector<float> seen[3];
    for (const size_t first : {0, 1, 2}) {  // of what is read and of what is written
      Typed x(kBrain, kCount + 1), y(kBrain, kCount + 1);
      std::copy_n(one.halves.begin(), kCount, x.halves.begin() + (first == 1));
      ASSERT_EQ(call(x.halves.data() + (first == 1), y.halves.data() + (first == 2)), nullptr);
      seen[first] = y.read();
      if (first == 2) seen[first].erase(seen[first].begin());
      seen[first].resize(kCount);
    }
    for (size_t i = 0; i < kCount; ++i)
      for (const auto& other : {seen[1], seen[2]}) ASSERT_NEAR(seen[0][i], other[i], 8e-3 * (0.1 + std::abs(other[i])));
  }
}

}  // namespace
}  // namespace motet::cuda
