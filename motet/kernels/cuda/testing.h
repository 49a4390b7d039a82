#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "motet/cuda/testing.h"
#include "motet/kernels/cuda/step.h"

// What the tests of a training step's kernels share: emulated on the host, against loops in double. Every fault that
// the emulation finds (a race, an access outside shared memory, a vector that is not aligned) fails the test that ran
// into it.
namespace motet::cuda::testing {

using Doubles = std::vector<double>;

inline constexpr NumberType kFloat = NumberType::float32, kBrain = NumberType::bfloat16, kHalf = NumberType::float16;

// Half the distance of neighbouring numbers near 1, and what float32 arithmetic adds.
inline double limit_of(NumberType type) { return (type == kBrain ? 4e-3 : type == kHalf ? 5e-4 : 0) + 3e-6; }

class Step : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(emulated::take_fault(), ""); }

  /// Random numbers of a type.
  Typed numbers(NumberType type, int64_t count, float size = 1) {
    Typed made(type, count);
    std::normal_distribution<float> normal(0, size);
    for (int64_t i = 0; i < count; ++i) store(made.data(), type, i, normal(random_));
    return made;
  }

  std::mt19937 random_{17};
  const StepKernels& kernels_ = step_kernels();
  Runtime none_;
};

/// Numbers of rows with a gap behind each, one after another.
inline Doubles packed(Typed& from, int64_t rows, int64_t columns, int64_t stride) {
  const std::vector<float> all = from.read();
  Doubles made;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) made.push_back(all[static_cast<size_t>(r * stride + i)]);
  return made;
}
inline Doubles doubles(Typed& from) { return packed(from, 1, from.size(), 0); }

/// Every number written and near enough: to the size of the one that is wanted, or of the largest for a limit of sums.
inline void expect_near(Typed& got, const Doubles& want, const char* name, double limit, bool by_largest = false) {
  const std::vector<float> have = got.read();
  ASSERT_EQ(have.size(), want.size()) << name;
  double largest = 0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(have[i] - want[i]), limit * (by_largest ? largest : 0.25 + std::abs(want[i])))
        << name << ' ' << i << " is " << have[i] << ", want " << want[i];
}

}  // namespace motet::cuda::testing
