#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "motet/core/testing.h"
#include "motet/kernels/linear_testing.h"
#include "motet/kernels/rows.h"

namespace motet {
namespace {

TEST(LinearKernel, EqualsTheSumInFloat64ForEveryTypeAndOddSizes) {
  for (const WeightType type : kTypes)
    for (const auto& [N, K] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {7, 63}, {33, 65}, {60, 577}, {9, 1024}, {40, 2060}})
      for (int64_t M : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 131}) {
        const Kept kept(type, N, K);
        const std::vector<float> x = drawn(M * K, 3), w = kept.values();
        std::vector<float> y(static_cast<size_t>(M * N), std::nanf(""));
        const LinearTask task{kept.weight, y.data()};
        linear({&task, 1}, x.data(), M, {});
        for (int64_t m = 0; m < M; ++m)
          for (int64_t n = 0; n < N; ++n) {
            double want = kept.bias[static_cast<size_t>(n)], size = 1;
            for (int64_t k = 0; k < K; ++k) {
              const double term = double{w[static_cast<size_t>(n * K + k)]} * x[static_cast<size_t>(m * K + k)];
              want += term, size += std::abs(term);
            }
            ASSERT_NEAR(y[static_cast<size_t>(m * N + n)], want, 3e-7 * size) << N << 'x' << K << " M " << M;
          }
      }
}

TEST(LinearKernel, ARowGivesTheSameBitsInAnyCompanyAndOnAnyThreads) {
  for (const bool long_rows : {false, true})
    for (const WeightType type : kTypes) {
      const int64_t N = 101, M = 131, K = long_rows ? 2060 : 577;
      const Kept kept(type, N, K), other(type, 64, K);
      const std::vector<float> x = drawn(M * K, 4);
      std::vector<float> together(static_cast<size_t>(M * N)), second(static_cast<size_t>(M * 64)),
          alone(static_cast<size_t>(N));
      const LinearTask tasks[] = {{other.weight, second.data()}, {kept.weight, together.data()}};
      linear(tasks, x.data(), M, testing::own_threads(3));
      for (int64_t m = 0; m < M; ++m) {
        const LinearTask task{kept.weight, alone.data()};
        linear({&task, 1}, x.data() + m * K, 1, {});
        ASSERT_EQ(0, std::memcmp(alone.data(), together.data() + m * N, static_cast<size_t>(N) * 4)) << m;
      }
    }
}

// Rows that want a copy of x are taken some at a time.
TEST(LinearKernel, RowsBehindMoreThanAreCopiedAtOnceAreTheirOwn) {
  const int64_t K = 1024, M = 515;
  const Kept first(WeightType::float32, 3, K), second(WeightType::int8, 5, K);
  const std::vector<float> x = drawn(M * K, 21);
  std::vector<float> rows(static_cast<size_t>(M * 8), std::nanf("")), alone(8);
  const LinearTask tasks[] = {{first.weight, rows.data()}, {second.weight, rows.data() + M * 3}};
  linear(tasks, x.data(), M, testing::own_threads(3));
  for (int64_t m = 0; m < M; ++m) {
    const LinearTask one[] = {{first.weight, alone.data()}, {second.weight, alone.data() + 3}};
    linear(one, x.data() + m * K, 1, {});
    ASSERT_EQ(0, std::memcmp(alone.data(), rows.data() + m * 3, 3 * sizeof(float))) << m;
    ASSERT_EQ(0, std::memcmp(alone.data() + 3, rows.data() + M * 3 + m * 5, 5 * sizeof(float))) << m;
  }
}

// However the rows of two layers fall into three stripes: a stripe may hold one row of a layer, its first or its last.
TEST(LinearKernel, EveryRowIsComputedWhereverAStripeEnds) {
  const int64_t K = 1024;  // so that four rows of sixteen are worth a task
  for (const int64_t M : {1, 2, 3, 4, 5, 6, 7, 16})
    for (int64_t N = 1; N <= 24; ++N) {
      const Kept first(WeightType::float32, N, K), second(WeightType::bfloat16, 25 - N, K);
      const std::vector<float> x = drawn(M * K, 13);
      std::vector<float> rows[2], alone[2];
      std::vector<LinearTask> tasks;
      for (int i = 0; i < 2; ++i) {
        const Weight& weight = (i ? second : first).weight;
        rows[i].assign(static_cast<size_t>(M * weight.N), std::nanf(""));
        alone[i] = rows[i];
        const LinearTask task{weight, alone[i].data()};
        linear({&task, 1}, x.data(), M, {});
        tasks.push_back({weight, rows[i].data()});
      }
      linear(tasks, x.data(), M, testing::own_threads(3));
      for (int i = 0; i < 2; ++i) ASSERT_EQ(rows[i], alone[i]) << N << " rows of 25, M " << M;
    }
}

// One thread comes to the rows of all others before they do, or all go through rows of several parts each.
TEST(LinearKernel, RowsAreComputedOnceWhoeverTakesThem) {
  const int64_t K = 1024, M = 16;
  const Kept first(WeightType::float32, 200, K), second(WeightType::int8, 41, K);
  const std::vector<float> x = drawn(M * K, 15);
  const auto results = [&](const Threads& threads) {
    std::vector<float> rows(static_cast<size_t>(M * 241), std::nanf(""));
    const LinearTask tasks[] = {{first.weight, rows.data()}, {second.weight, rows.data() + M * 200}};
    linear(tasks, x.data(), M, threads);
    return rows;
  };
  const std::vector<float> alone = results({});
  EXPECT_EQ(results({4,
                     [](int64_t n, const auto& task) {
                       for (int64_t i = 0; i < n; ++i) task(i);
                     }}),
            alone);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(results(testing::own_threads(3)), alone);
}

TEST(LinearKernel, EveryFloat16NumberIsItselfInFloat32) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  const int64_t K = 257;  // a row ends within a vector
  const Weight weight{.type = WeightType::float16, .data = all.data(), .N = (1 << 16) / K, .K = K};
  dequantize_rows(weight, 0, weight.N, wide.data());
  for (size_t i = 0; i < static_cast<size_t>(weight.N * K); ++i) {
    const float want = static_cast<float>(std::bit_cast<Half>(all[i]));
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(want)) << i;
  }
}

TEST(LinearKernel, WithoutABiasAndWithoutAScaleAreTheBareProducts) {
  for (const WeightType type : kTypes) {
    Kept kept(type, 3, 20);
    kept.weight.bias = nullptr;
    const std::vector<float> x = drawn(20, 14), w = kept.values();
    std::vector<float> y(3);
    const LinearTask task{kept.weight, y.data()};
    linear({&task, 1}, x.data(), 1, {});
    for (int64_t n = 0; n < 3; ++n) {
      double want = 0;
      for (int64_t k = 0; k < 20; ++k) want += double{w[static_cast<size_t>(n * 20 + k)]} * x[static_cast<size_t>(k)];
      EXPECT_NEAR(y[static_cast<size_t>(n)], want, 1e-5);
    }
  }
}

TEST(LinearKernel, EightBitRowsAreWithinHalfAStep) {
  const std::vector<float> w = drawn(4 * 50, 5);
  std::vector<int8_t> bytes(w.size());
  float scale[4];
  quantize_rows(w.data(), 4, 50, bytes.data(), scale);
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_LE(std::abs(w[i] - static_cast<float>(bytes[i]) * scale[i / 50]), 0.5001f * scale[i / 50]);
  const float zeros[3] = {};
  quantize_rows(zeros, 1, 3, bytes.data(), scale);
  EXPECT_EQ(scale[0], 1);
  EXPECT_EQ(bytes[2], 0);
}

TEST(LinearKernel, EightBitsDoNotHideWhatIsNotFinite) {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const size_t place : {size_t{0}, size_t{49}}) {
      std::vector<float> w = drawn(50, 12);
      w[place] = wrong;
      std::vector<int8_t> bytes(50);
      float scale = 0;
      quantize_rows(w.data(), 1, 50, bytes.data(), &scale);
      EXPECT_FALSE(std::isfinite(scale)) << wrong << " at " << place;
    }
}

TEST(LinearKernel, NanStaysNan) {
  const Kept kept(WeightType::float32, 4, 40);
  std::vector<float> x = drawn(40, 6), y(4);
  x[39] = std::numeric_limits<float>::quiet_NaN();
  const LinearTask task{kept.weight, y.data()};
  linear({&task, 1}, x.data(), 1, {});
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

TEST(RowKernels, NormsEqualTheirFormulasInFloat64) {
  for (const int64_t K : {1, 7, 16, 33, 576}) {
    const std::vector<float> x = drawn(2 * K, 7), weight = drawn(K, 8), bias = drawn(K, 9);
    std::vector<float> rms(x.size()), plain(x.size()), layer(x.size());
    rms_norm_rows(x.data(), 2, K, weight.data(), 1e-5f, rms.data());
    rms_norm_rows(x.data(), 2, K, nullptr, 1e-5f, plain.data());
    layer_norm_rows(x.data(), 2, K, weight.data(), bias.data(), 1e-5f, layer.data());
    for (int64_t m = 0; m < 2; ++m) {
      double squares = 0, sum = 0, spread = 0;
      const auto at = [&](int64_t k) { return static_cast<size_t>(m * K + k); };
      for (int64_t k = 0; k < K; ++k) squares += double(x[at(k)]) * x[at(k)], sum += x[at(k)];
      const double count = static_cast<double>(K), mean = sum / count;
      for (int64_t k = 0; k < K; ++k) spread += (x[at(k)] - mean) * (x[at(k)] - mean);
      for (int64_t k = 0; k < K; ++k) {
        const double w = weight[static_cast<size_t>(k)], b = bias[static_cast<size_t>(k)];
        const double unit = x[at(k)] / std::sqrt(squares / count + 1e-5);
        EXPECT_NEAR(plain[at(k)], unit, 4e-6);
        EXPECT_NEAR(rms[at(k)], w * unit, 1e-5);
        EXPECT_NEAR(layer[at(k)], w * (x[at(k)] - mean) / std::sqrt(spread / count + 1e-5) + b, 1e-5);
      }
    }
  }
}

TEST(RowKernels, RotationTurnsThePairsAndLeavesTheRest) {
  const int64_t H = 2, D = 45, P = 19;
  const std::vector<float> x = drawn(H * D, 10), angle = drawn(P, 11);
  std::vector<float> cos, sin;
  for (const float a : angle) cos.push_back(std::cos(a)), sin.push_back(std::sin(a));
  for (const bool interleaved : {false, true}) {
    std::vector<float> y(x.size());
    rotate_heads(x.data(), H, D, {cos.data(), sin.data(), P, interleaved}, y.data());
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t j = 0; j < P; ++j) {
        const size_t a = static_cast<size_t>(h * D + (interleaved ? 2 * j : j)),
                     b = static_cast<size_t>(h * D + (interleaved ? 2 * j + 1 : j + P)), i = static_cast<size_t>(j);
        EXPECT_NEAR(y[a], x[a] * cos[i] - x[b] * sin[i], 1e-6);
        EXPECT_NEAR(y[b], x[b] * cos[i] + x[a] * sin[i], 1e-6);
      }
      for (int64_t d = 2 * P; d < D; ++d)
        EXPECT_EQ(y[static_cast<size_t>(h * D + d)], x[static_cast<size_t>(h * D + d)]);
    }
  }
}

TEST(RowKernels, EpsIsTheCallersAndStandsUnderTheRoot) {
  const std::vector<float> x{3e-3f, -1e-3f, 2e-3f, -4e-3f, 0}, ones(5, 1), zeros(5, 0);
  for (const float eps : {1e-6f, 1e-2f}) {
    std::vector<float> rms(5), layer(5);
    rms_norm_rows(x.data(), 1, 5, nullptr, eps, rms.data());
    layer_norm_rows(x.data(), 1, 5, ones.data(), zeros.data(), eps, layer.data());
    EXPECT_NEAR(rms[0], 3e-3 / std::sqrt(6e-6 + eps), 1e-5);  // the mean is 0
    EXPECT_NEAR(layer[3], -4e-3 / std::sqrt(6e-6 + eps), 1e-5);
  }
}

TEST(RowKernels, TheResultMayTakeThePlaceOfTheInput) {
  const int64_t H = 2, D = 45, P = 19;
  const std::vector<float> x = drawn(H * D, 15), cos = drawn(P, 16), sin = drawn(P, 17);
  const auto expect_same = [&](auto&& kernel) {
    std::vector<float> apart(x.size()), in_place = x;
    kernel(x.data(), apart.data());
    kernel(in_place.data(), in_place.data());
    EXPECT_EQ(in_place, apart);
  };
  for (const bool interleaved : {false, true})
    expect_same(
        [&](const float* from, float* to) { rotate_heads(from, H, D, {cos.data(), sin.data(), P, interleaved}, to); });
  expect_same([&](const float* from, float* to) { rms_norm_rows(from, H, D, x.data(), 1e-5f, to); });
  expect_same([&](const float* from, float* to) { layer_norm_rows(from, H, D, x.data(), x.data(), 1e-5f, to); });
  expect_same([&](const float* from, float* to) { silu_times(from, x.data(), H * D, to); });
  expect_same([&](const float* from, float* to) { gelu(from, H * D, true, to); });
}

TEST(RowKernels, SiluIsFiniteForLargeNumbers) {
  std::vector<float> gate;  // each of them in every place of a vector, and behind the last
  for (const float x : {-1e4f, -1000.f, -300.f, -200.f, -180.f, -178.f, -170.f, -104.f, -100.f, -89.f, -88.f,
                        -5.f,  -1.f,    0.f,    1.f,    2.f,    3.f,    88.f,   100.f,  178.f,  1e4f})
    gate.insert(gate.end(), 17, x);
  const std::vector<float> up(gate.size(), 2);
  std::vector<float> y(gate.size());
  silu_times(gate.data(), up.data(), static_cast<int64_t>(gate.size()), y.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double want = 2.0 * gate[i] / (1 + std::exp(-double(gate[i])));
    EXPECT_NEAR(y[i], want, 1e-6 * std::max(1.0, std::abs(want)));
  }
  std::vector<float> dgate(gate.size()), dup(gate.size());
  const std::vector<float> dy(gate.size(), 3);
  silu_times_backward(gate.data(), up.data(), dy.data(), static_cast<int64_t>(gate.size()), {dgate.data(), dup.data()});
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i], s = 1 / (1 + std::exp(-g)), want_gate = 3 * 2 * s * (1 + g * (1 - s)),
                 want_up = 3 * g * s;
    EXPECT_NEAR(dgate[i], want_gate, 1e-6 * std::max(1.0, std::abs(want_gate))) << g;
    EXPECT_NEAR(dup[i], want_up, 1e-6 * std::max(1.0, std::abs(want_up))) << g;
  }
}

// A fine grid through both ends of the approximations, and numbers of every size.
std::vector<float> grid() {
  std::vector<float> x{-1e30f, -1e4f, -30, 30, 1e4f, 1e30f, -0.f, 1e-30f};
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1e-3f + 1e-7f);
  return x;
}

TEST(RowKernels, GeluIsItsFormulaInFloat64) {
  const std::vector<float> x = grid();
  for (const bool by_tanh : {false, true}) {
    std::vector<float> y(x.size());
    gelu(x.data(), static_cast<int64_t>(x.size()), by_tanh, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
      const double want = 0.5 * v * (1 + (by_tanh ? std::tanh(inner) : std::erf(v / std::sqrt(2.0))));
      ASSERT_NEAR(y[i], want, 2e-7 * std::abs(v) + 2e-7 * std::abs(want)) << by_tanh << " " << v;
    }
  }
}

TEST(RowKernels, TanhIsThatOfFloat64) {
  const std::vector<float> x = grid();
  std::vector<float> y(x.size());
  tanh_of(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::tanh(static_cast<double>(x[i]));
    ASSERT_NEAR(y[i], want, 4e-7 * std::abs(want)) << x[i];
  }
}

TEST(RowKernels, ActivationsOfNoNumberAreNone) {
  const float x[] = {NAN, 1};
  float y[2];
  tanh_of(x, 2, y);
  EXPECT_TRUE(std::isnan(y[0]) && !std::isnan(y[1]));
  for (const bool by_tanh : {false, true}) {
    gelu(x, 2, by_tanh, y);
    EXPECT_TRUE(std::isnan(y[0]) && !std::isnan(y[1])) << by_tanh;
  }
}

}  // namespace
}  // namespace motet
