#include "motet/ops/dropout.h"
#include "motet/ops/other_device.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return (at::rand(shape, at::TensorOptions(at::kDouble)) + 0.5).to(dtype);
}

TEST(Dropout, APartOfTheNumbersIsZeroAndTheRestMakesUpForIt) {
  const Tensor x = at::ones({40, 999});
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor y = ops::dropout(x, {.p = p, .key = 7});
    const double zeros = (y == 0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(zeros, p, 4 * std::sqrt(p * (1 - p) / 39960));
    EXPECT_TRUE(((y == 0) | (y - 1 / (1 - p)).abs().lt(1e-3)).all().item<bool>());
  }
  EXPECT_TRUE(ops::dropout(x, {}).equal(x));
}

TEST(Dropout, NeighboursRowsKeysAndPartsAreIndependent) {
  const Tensor x = at::ones({64, 1024});
  const auto zeros = [&](const Dropout& d) { return (ops::dropout(x, d) == 0).to(at::kDouble); };
  const Dropout one{.p = 0.5, .key = 1};
  const Tensor base = zeros(one);
  const auto together = [&](const Tensor& a, const Tensor& b) { return (a * b).mean().item<double>(); };
  EXPECT_NEAR(together(base, zeros({.p = 0.5, .key = 2})), 0.25, 0.01);
  EXPECT_NEAR(together(zeros(one.at(0)), zeros(one.at(1))), 0.25, 0.01);
  for (const int64_t by : {1, 2, 3, 4, 5})
    EXPECT_NEAR(together(base.slice(1, by), base.slice(1, 0, 1024 - by)), 0.25, 0.01) << by;
  EXPECT_NEAR(together(base.slice(0, 1), base.slice(0, 0, 63)), 0.25, 0.01);
}

TEST(Dropout, ARowDependsOnItsNumberInTheBatchAlone) {
  const Tensor x = numbers({6, 3, 5});
  const Tensor whole = ops::dropout(x, {.p = 0.4, .key = 3});
  for (const char* kernel : {"counter", "torch"}) {
    const Tensor part = ops::dropout(x.slice(0, 2, 5), {.p = 0.4, .key = 3, .first_row = 2}, kernel);
    EXPECT_TRUE(part.equal(whole.slice(0, 2, 5))) << kernel;
  }
}

TEST(Dropout, RowsOfTheTableGiveTheSameBits) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const Tensor x = numbers({3, 7, 11}, dtype);
    const Dropout drop{.p = 0.37, .key = 0xFFFFFFFFFFFFFFF1u, .first_row = 1'000'000};
    const Tensor a = ops::dropout(x, drop, "counter"), b = ops::dropout(x, drop, "torch");
    EXPECT_EQ(a.scalar_type(), dtype);
    EXPECT_TRUE(a.equal(b)) << dtype;
  }
}

TEST(Dropout, NobodyWaitsForADevice) {
  const Tensor x = numbers({3, 10}), there = x.to(testing::other_device());
  const testing::OtherCounts before = testing::other_counts();
  const Tensor y = ops::dropout(there, {.p = 0.5, .key = 9});
  EXPECT_EQ(testing::other_counts().waits, before.waits);
  EXPECT_EQ(testing::other_counts().without_wait, before.without_wait + 1);
  EXPECT_TRUE(y.cpu().equal(ops::dropout(x, {.p = 0.5, .key = 9})));
}

TEST(Dropout, GradientsAreOfTheNumbersThatStay) {
  for (const char* kernel : {"counter", "torch"}) {
    const Tensor x = numbers({3, 10}, at::kDouble).requires_grad_();
    const Tensor weights = numbers({3, 10}, at::kDouble);
    (ops::dropout(x, {.p = 0.5, .key = 9}, kernel) * weights).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), ops::dropout(weights, {.p = 0.5, .key = 9}))) << kernel;
  }
  EXPECT_THROW(ops::dropout(at::ones({2}), {.p = 1}), c10::ValueError);
  EXPECT_THROW(ops::dropout(at::ones({2}, at::kLong), {.p = 0.5}), c10::ValueError);
}

}  // namespace
}  // namespace motet
