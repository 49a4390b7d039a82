// Through linear(), which takes these products for weights in 8 bits where the CPU has them.
#include "motet/kernels/linear_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "motet/core/testing.h"
#include "motet/kernels/linear_testing.h"

namespace motet {
namespace {

class LinearBytes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!bytes::can_multiply(1)) GTEST_SKIP() << "this CPU has no products of bytes (AVX-512 VNNI)";
  }
};

// Whole numbers, so that every sum has one right result.
struct Whole {
  int64_t N, K, M;
  std::vector<int8_t> w;
  std::vector<float> x, scale, y;

  Whole(int64_t N, int64_t K, int64_t M)
      : N(N),
        K(K),
        M(M),
        w(static_cast<size_t>(N * K)),
        x(static_cast<size_t>(M * K)),
        scale(static_cast<size_t>(N)),
        y(static_cast<size_t>(M * N), std::nanf("")) {
    std::mt19937 random(5);
    for (int8_t& number : w) number = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    for (float& number : x) number = static_cast<float>(static_cast<int>(random() % 16711423) - 8355711);
    for (size_t n = 0; n < scale.size(); ++n) scale[n] = std::ldexp(1.f, static_cast<int>(n % 5) - 2);
  }
  const std::vector<float>& multiply(const Threads& threads = {}) {
    const LinearTask task{{.type = WeightType::int8, .data = w.data(), .scale = scale.data(), .N = N, .K = K},
                          y.data()};
    linear({&task, 1}, x.data(), M, threads);
    return y;
  }
  std::vector<float> right() const {
    std::vector<float> all;
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        int64_t sum = 0;
        for (int64_t k = 0; k < K; ++k)
          sum += int64_t{w[static_cast<size_t>(n * K + k)]} * static_cast<int64_t>(x[static_cast<size_t>(m * K + k)]);
        all.push_back(static_cast<float>(static_cast<double>(sum)) * scale[static_cast<size_t>(n)]);
      }
    return all;
  }
};

TEST_F(LinearBytes, SumsOfWholeNumbersAreRoundedOnce) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {3, 63}, {7, 64}, {33, 65}, {70, 577}, {5, 3100}})
    for (const int64_t M : {1, 2, 3, 4, 5, 7, 8, 9, 18, 515}) {
      Whole some(N, K, M);
      ASSERT_EQ(some.multiply(), some.right()) << N << 'x' << K << " M " << M;
      ASSERT_EQ(some.multiply(testing::own_threads(3)), some.right()) << N << 'x' << K << " M " << M;
    }
}

// As many terms as 32 bits hold, each the largest there is, and one term more.
TEST_F(LinearBytes, SumsDoNotOverflow) {
  EXPECT_TRUE(bytes::can_multiply(65536));
  EXPECT_FALSE(bytes::can_multiply(65537));
  for (const float number : {8355711.f, -8355711.f, -0x7f8080.0p0f})  // digits of 127, of -127, of -128 twice
    for (const int weight : {127, -127, -128})
      for (const int64_t M : {1, 12}) {
        Whole some(2, 65536, M);
        std::fill(some.w.begin(), some.w.end(), static_cast<int8_t>(weight));
        std::fill(some.x.begin(), some.x.end(), number);
        ASSERT_EQ(some.multiply(), some.right()) << number << " times " << weight;
      }
  Whole longer(2, 65537, 1);
  std::fill(longer.w.begin(), longer.w.end(), 127);
  std::fill(longer.x.begin(), longer.x.end(), 1.f);
  EXPECT_EQ(longer.multiply()[0], 127 * 65537 * longer.scale[0]);
}

TEST_F(LinearBytes, ARowHasAUnitOfItsOwn) {
  const int exponents[] = {100, 0, -100, 60, -60, -125, 104};
  Whole some(9, 130, 7), same(9, 130, 7);
  for (size_t m = 0; m < 7; ++m)
    for (size_t k = 0; k < 130; ++k) some.x[m * 130 + k] = std::ldexp(same.x[m * 130 + k], exponents[m] - 23);
  some.multiply(), same.multiply();
  for (size_t i = 0; i < same.y.size(); ++i)
    if (exponents[i / 9] > -125)
      ASSERT_EQ(some.y[i], std::ldexp(same.y[i], exponents[i / 9] - 23)) << i;
    else  // the smallest unit is 2^-126: numbers below it are lost, no more
      ASSERT_NEAR(some.y[i], std::ldexp(same.y[i], exponents[i / 9] - 23), 130 * 128 * 4 * 0x1p-127) << i;
}

TEST_F(LinearBytes, NumbersThatHaveNoThreeDigitsAreHalved) {
  for (const int64_t M : {2, 11}) {
    Whole some(9, 70, M);
    for (size_t m = 0; m < static_cast<size_t>(M); ++m)
      some.x[m * 70] = (m % 2 ? -1 : 1) * 8388606.f, some.x[m * 70 + 1] = 8355712.f;
    for (float& x : some.x) x = 2 * std::floor(x / 2);
    ASSERT_EQ(some.multiply(), some.right());
  }
}

TEST_F(LinearBytes, ANumberIsRoundedToTheNearestInStepsOfTheLargest) {
  const int64_t K = 577, M = 3;
  const std::vector<float> scale(K, 1.f);
  std::vector<int8_t> w(K * K);
  for (size_t k = 0; k < K; ++k) w[k * K + k] = 127;
  std::vector<float> x = drawn(M * K, 3), y(static_cast<size_t>(M * K));
  for (size_t m = 0; m < M; ++m) x[m * K + 7 * m] = 1030;  // far beyond the others, and of few bits
  const LinearTask task{{.type = WeightType::int8, .data = w.data(), .scale = scale.data(), .N = K, .K = K}, y.data()};
  linear({&task, 1}, x.data(), M, {});
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(y[i], 127. * x[i], 127 * (1.2e-7 * 1030 + 0x1p-24 * std::abs(x[i]))) << i;
}

TEST_F(LinearBytes, WhatIsNotFiniteSpoilsItsRowAlone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t M : {6, 14})
    for (const float wrong : {std::nanf(""), infinity, -infinity})
      for (const size_t place : {size_t{0}, size_t{69}}) {
        Whole some(35, 70, M);
        const std::vector<float> right = some.right();
        some.x[2 * 70 + place] = wrong;
        some.multiply();
        for (size_t i = 0; i < right.size(); ++i)
          if (i / 35 == 2)
            ASSERT_TRUE(std::isnan(some.y[i])) << i;
          else
            ASSERT_EQ(some.y[i], right[i]) << i;
      }
}

TEST_F(LinearBytes, ARowOfZerosIsTheBias) {
  const Kept kept(WeightType::int8, 5, 70);
  const std::vector<float> x(70, 0.f);
  std::vector<float> y(5);
  const LinearTask task{kept.weight, y.data()};
  linear({&task, 1}, x.data(), 1, {});
  EXPECT_EQ(y, kept.bias);
}

}  // namespace
}  // namespace motet
