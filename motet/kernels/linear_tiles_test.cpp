// Linear layers by tiles, on their emulation; against the CPU's tiles where it has them.
#include "motet/kernels/linear_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "motet/core/instructions.h"
#include "motet/core/testing.h"
#include "motet/kernels/linear_testing.h"

namespace motet {
namespace {

std::vector<float> by_tiles(const Weight& weight, const std::vector<float>& x, int64_t M,
                            Precision precision = Precision::highest) {
  std::vector<float> y(static_cast<size_t>(M * weight.N), std::nanf(""));
  const LinearTask task{weight, y.data()};
  linear_by_emulated_tiles({&task, 1}, x.data(), M, precision, {});
  return y;
}

// The largest error against float64, over the sum of the terms' absolute values.
double error(const Kept& kept, const std::vector<float>& x, const std::vector<float>& y) {
  const int64_t N = kept.weight.N, K = kept.weight.K;
  double worst = 0;
  std::vector<float> row(static_cast<size_t>(K));
  for (int64_t n = 0; n < N; ++n) {
    dequantize_rows(kept.weight, n, 1, row.data());
    for (int64_t m = 0; m < static_cast<int64_t>(y.size()) / N; ++m) {
      double want = kept.bias[static_cast<size_t>(n)], size = std::abs(want);
      for (int64_t k = 0; k < K; ++k) {
        const double term = double{row[static_cast<size_t>(k)]} * x[static_cast<size_t>(m * K + k)];
        want += term, size += std::abs(term);
      }
      const double off = std::abs(y[static_cast<size_t>(m * N + n)] - want) / size;
      worst = off <= worst ? worst : off;  // NaN stays
    }
  }
  return worst;
}

TEST(LinearTiles, EqualTheSumInFloat64ForEveryTypeAndOddSizes) {
  for (const WeightType type : kTypes)
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {33, 32}, {65, 33}, {60, 577}})
      for (const int64_t M : {1, 16, 17, 33}) {
        const Kept kept(type, N, K);
        const std::vector<float> x = drawn(M * K, 3);
        EXPECT_LT(error(kept, x, by_tiles(kept.weight, x, M)), 3e-7) << N << 'x' << K << " M " << M;
        EXPECT_LT(error(kept, x, by_tiles(kept.weight, x, M, Precision::high)), 0x1p-15) << N << 'x' << K << " M " << M;
      }
}

// Two parts of each number, no fewer and no more: what is left out can be seen, and is small.
TEST(LinearTiles, HighLeavesOutTheThirdPart) {
  const Kept kept(WeightType::float32, 32, 64);
  const std::vector<float> x = drawn(16 * 64, 7);
  const double high = error(kept, x, by_tiles(kept.weight, x, 16, Precision::high));
  EXPECT_GT(high, 1e-6);
  EXPECT_LT(high, 1e-5);
}

// What highest promises: the error of float32 products at most, as a root of the mean square.
TEST(LinearTiles, ThreePartsAreAsGoodAsProductsOfFloat32) {
  const int64_t N = 48, K = 577, M = 32;
  const Kept kept(WeightType::float32, N, K);
  const std::vector<float> x = drawn(M * K, 9);
  std::vector<float> rows(static_cast<size_t>(M * N));
  const LinearTask task{kept.weight, rows.data()};
  linear({&task, 1}, x.data(), M, {});
  const std::vector<float> tiles = by_tiles(kept.weight, x, M);
  double of_rows = 0, of_tiles = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t m = i / N, n = i % N;
    double want = kept.bias[n];
    for (size_t k = 0; k < K; ++k) want += double{kept.w[n * K + k]} * x[m * K + k];
    of_rows += std::pow(rows[i] - want, 2), of_tiles += std::pow(tiles[i] - want, 2);
  }
  EXPECT_LE(std::sqrt(of_tiles / of_rows), 1);  // 0.89 beside AVX-512
}

// 24 bits of x meet a weight of 8: nothing is rounded but sums, and these are exact here.
TEST(LinearTiles, WeightsInFewerBitsMeetAllOfX) {
  const float numbers[] = {16777215, -0x1.35a5a8p0f, 0x1.2b96b4p-1f, 1};  // the second and third have all three parts
  for (const float number : numbers) {
    const uint16_t three = 0x4040, zero = 0;  // bfloat16
    const uint16_t w[] = {zero, three, zero};
    const float x[] = {5, number, -7};
    float y = 0;
    const LinearTask task{{.type = WeightType::bfloat16, .data = w, .N = 1, .K = 3}, &y};
    linear_by_emulated_tiles({&task, 1}, x, 1, Precision::highest, {});
    EXPECT_EQ(y, 3 * number);
    const int8_t bytes[] = {0, -127, 0};
    const float scale = 0.5f;
    const LinearTask eight{{.type = WeightType::int8, .data = bytes, .scale = &scale, .N = 1, .K = 3}, &y};
    linear_by_emulated_tiles({&eight, 1}, x, 1, Precision::highest, {});
    EXPECT_NEAR(y, -63.5 * number, 0x1p-23 * 63.5 * std::abs(number));
  }
}

TEST(LinearTiles, ARowGivesTheSameBitsInAnyCompanyAndOnAnyThreads) {
  for (const WeightType type : kTypes) {
    const int64_t N = 101, K = 70, M = 530;  // more than are turned at once
    const Kept kept(type, N, K), other(type, 64, K);
    const std::vector<float> x = drawn(M * K, 4);
    std::vector<float> together(static_cast<size_t>(M * N)), second(static_cast<size_t>(M * 64));
    const LinearTask tasks[] = {{other.weight, second.data()}, {kept.weight, together.data()}};
    linear_by_emulated_tiles(tasks, x.data(), M, Precision::highest, testing::own_threads(3));
    for (const int64_t m : {0, 15, 16, 31, 32, 100, 511, 512, 529}) {
      const std::vector<float> row(x.begin() + m * K, x.begin() + (m + 1) * K);
      const std::vector<float> alone = by_tiles(kept.weight, row, 1);
      ASSERT_EQ(0, std::memcmp(alone.data(), together.data() + m * N, static_cast<size_t>(N) * 4)) << m;
    }
    EXPECT_EQ(second, by_tiles(other.weight, x, M));
  }
}

#if defined(__x86_64__)
TEST(LinearTiles, OfTheCpuGiveTheBitsOfTheEmulation) {
  if (const std::string reason = why_not_amx(); !reason.empty()) GTEST_SKIP() << reason;
  for (const WeightType type : kTypes)
    for (const int64_t M : {1, 20, 70})
      for (const Precision precision : {Precision::highest, Precision::high}) {
        const Kept kept(type, 75, 130);
        const std::vector<float> x = drawn(M * 130, 5);
        std::vector<float> y(static_cast<size_t>(M * 75));
        const LinearTask task{kept.weight, y.data()};
        linear_by_tiles({&task, 1}, x.data(), M, precision, testing::own_threads(2));
        EXPECT_EQ(y, by_tiles(kept.weight, x, M, precision));
      }
}
#endif

}  // namespace
}  // namespace motet
