// Through linear(), which takes these products for weights in 8 bits where the CPU has them.
#include "motet/kernels/linear_bytes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
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
  for (const float number : {8355711.f, -8355711.f, -8290432.f})  // digits of 127, of -127, of -126 and -128 twice
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
  const int exponents[] = {100, 0, -100, 60, -60, 104, -102};
  Whole some(9, 130, 7), same(9, 130, 7);
  for (size_t m = 0; m < 7; ++m)
    for (size_t k = 0; k < 130; ++k) some.x[m * 130 + k] = std::ldexp(same.x[m * 130 + k], exponents[m] - 23);
  some.multiply(), same.multiply();
  for (size_t i = 0; i < same.y.size(); ++i) ASSERT_EQ(some.y[i], std::ldexp(same.y[i], exponents[i / 9] - 23)) << i;
}

// One number of each row, at every place, is 2^14 times the others and makes the unit.
TEST_F(LinearBytes, TheLargestNumberMayStandAnywhere) {
  const int64_t K = 131;
  Whole some(2, K, K);
  for (size_t m = 0; m < K; ++m)
    for (size_t k = 0; k < K; ++k) some.x[m * K + k] = static_cast<float>((m == k ? 16384 : 1) * (m + k + 1));
  EXPECT_EQ(some.multiply(), some.right());
}

// The smallest unit is 2^-126; the largest numbers have one of 2^106.
TEST_F(LinearBytes, UnitsEndWhereNumbersDo) {
  Whole small(9, 130, 5);
  const std::vector<float> given = small.x;
  for (float& x : small.x) x = std::ldexp(x, -148);
  const std::vector<float> y = small.multiply();
  for (size_t i = 0; i < given.size(); ++i) small.x[i] = std::nearbyint(std::ldexp(given[i], -22));
  const std::vector<float> right = small.right();
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], std::ldexp(right[i], -126)) << i;

  const float most = std::numeric_limits<float>::max();  // rounded to 2^128
  Whole large(2, 2, 5);
  large.scale = {0x1p-20f, 0x1p-20f}, large.w = {1, -1, -1, 1};
  for (size_t m = 0; m < 5; ++m) large.x[2 * m] = m % 2 ? -most : most, large.x[2 * m + 1] = large.x[2 * m] / 2;
  large.multiply();
  for (size_t i = 0; i < large.y.size(); ++i) EXPECT_EQ(large.y[i], (i / 2 + i) % 2 ? -0x1p107f : 0x1p107f) << i;
}

TEST_F(LinearBytes, NumbersThatHaveNoThreeDigitsAreHalved) {
  for (const int64_t M : {2, 11}) {
    Whole some(9, 70, M);
    for (size_t m = 0; m < static_cast<size_t>(M); ++m)
      some.x[m * 70] = (m % 2 ? -1 : 1) * 8388606.f, some.x[m * 70 + 1] = 8355712.f;
    for (float& x : some.x) x = 2 * std::floor(x / 2);
    ASSERT_EQ(some.multiply(), some.right());
  }
  for (const float edge : {8355711.5f, -8355711.5f, 8355712.f}) {  // halved, and rounded to 8355712
    Whole one(1, 1, 1);
    one.x = {edge}, one.w = {1};
    ASSERT_EQ(one.multiply()[0], std::copysign(8355712.f, edge) * one.scale[0]);
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

// Numbers whose last byte is the last that may be read.
template <class T>
class AtTheEnd {
 public:
  explicit AtTheEnd(const std::vector<T>& of) : bytes_((of.size() * sizeof(T) / kPage + 1) * kPage) {
    base_ =
        static_cast<char*>(mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + bytes_, kPage, PROT_NONE);
    data_ = reinterpret_cast<T*>(base_ + bytes_) - of.size();
    std::copy(of.begin(), of.end(), data_);
  }
  AtTheEnd(const AtTheEnd&) = delete;
  ~AtTheEnd() { munmap(base_, bytes_ + kPage); }
  T* data() const { return data_; }

 private:
  static constexpr size_t kPage = 4096;
  size_t bytes_;
  char* base_;
  T* data_;
};

TEST_F(LinearBytes, NothingBehindTheNumbersIsRead) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{3, 65}, {33, 63}, {1, 1}, {17, 130}})
    for (const int64_t M : {1, 3, 12}) {
      const Whole some(N, K, M);
      const std::vector<float> right = some.right(), zeros(static_cast<size_t>(N));
      const AtTheEnd<int8_t> w(some.w);
      const AtTheEnd<float> x(some.x), scale(some.scale), bias(zeros), y(some.y);
      const LinearTask task{
          {.type = WeightType::int8, .data = w.data(), .scale = scale.data(), .bias = bias.data(), .N = N, .K = K},
          y.data()};
      linear({&task, 1}, x.data(), M, {});
      ASSERT_TRUE(std::equal(right.begin(), right.end(), y.data())) << N << 'x' << K << " M " << M;
    }
}

TEST_F(LinearBytes, LayersOfOtherTypesBesideThemReadTheirOwnRows) {
  const int64_t K = 70, M = 515;  // more than are kept as bytes at once
  const Kept floats(WeightType::float32, 20, K), first(WeightType::int8, 9, K), second(WeightType::int8, 40, K);
  const Kept* const all[] = {&floats, &first, &second};
  const std::vector<float> x = drawn(M * K, 8);
  std::vector<float> together[3];
  std::vector<LinearTask> tasks;
  for (size_t i = 0; i < 3; ++i) {
    together[i].resize(static_cast<size_t>(M * all[i]->weight.N));
    tasks.push_back({all[i]->weight, together[i].data()});
  }
  linear(tasks, x.data(), M, testing::own_threads(2));
  for (size_t i = 0; i < 3; ++i) {
    std::vector<float> alone(together[i].size());
    for (int64_t m = 0; m < M; m += 103) {
      const LinearTask rows{all[i]->weight, alone.data() + m * all[i]->weight.N};
      linear({&rows, 1}, x.data() + m * K, 103, {});
    }
    ASSERT_EQ(alone, together[i]) << i;
  }
  linear({}, x.data(), M, {});
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
