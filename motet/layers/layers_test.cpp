#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/layers/feed_forward.h"
#include "motet/layers/norms.h"
#include "motet/layers/rotary.h"
#include "motet/ops/ops.h"

namespace motet {
namespace {

void expect_near(const Tensor& got, std::vector<double> want, double tolerance) {
  EXPECT_LE((got.flatten() - at::tensor(want, at::kDouble)).abs().max().item<double>(), tolerance) << got;
}

TEST(Norms, WorkedExamples) {
  const Tensor z = at::tensor({1.0, 2.0, 3.0, 6.0}, at::kDouble);
  expect_near(ops::rms_norm(z, {}, 1e-6), {0.2828, 0.5657, 0.8485, 1.6971}, 5e-5);
  Norm layer(4, NormKind::layer, 1e-5);
  layer->to(at::kDouble);
  expect_near(layer(z), {-1.0690, -0.5345, 0, 1.6036}, 5e-5);
}

TEST(FeedForward, ActivationsWorkedExamples) {
  const Tensor z = at::tensor({-1.0, 1.0, 3.0}, at::kDouble);
  expect_near(activated(z, Activation::gelu), {-0.1587, 0.8413, 2.9960}, 5e-5);
  expect_near(activated(z, Activation::gelu_tanh), {-0.1588, 0.8412, 2.9964}, 5e-5);
  expect_near(activated(z, Activation::silu), {-0.2689, 0.7311, 2.8577}, 5e-5);
}

Tensor turned(RotaryOptions options) {
  return Rotary(options)(at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({1, 1, 1, 4}), Positions::range(1, 2, 2));
}

TEST(Rotary, WorkedExamples) {
  using enum RotaryOptions::Pairing;
  expect_near(turned({.dims = 4, .pairing = half}), {-1.9841, 1.9599, 2.4624, 4.0198}, 5e-5);
  expect_near(turned({.dims = 4, .pairing = interleaved}), {-1.1426, 1.9221, 2.9599, 4.0298}, 5e-5);
  expect_near(turned({.dims = 2, .pairing = half}), {-1.1426, 1.9221, 3, 4}, 5e-5);
}

TEST(Rotary, Llama3FrequenciesWorkedExample) {
  const Rotary r(
      {.dims = 64, .base = 5e5, .scaling = RotaryOptions::Scaling::llama3, .factor = 32, .max_position = 8192});
  const Tensor f = r.inverse_frequencies(100000);
  EXPECT_NEAR(f[14].item<double>(), 0.00321145, 1e-8);
  EXPECT_NEAR(f[15].item<double>(), 0.00129054793, 1e-11);
  EXPECT_NEAR(f[17].item<double>(), 9.7082878e-05, 1e-12);
  EXPECT_NEAR(f[18].item<double>(), 1.94616382e-05, 1e-13);
}

double base_of(const Rotary& r, int64_t length) {  // theta_1 = base^(-2/dims)
  return std::pow(r.inverse_frequencies(length)[1].item<double>(), -static_cast<double>(r.options().dims) / 2);
}

TEST(Rotary, NtkBasesWorkedExamples) {
  using enum RotaryOptions::Scaling;
  EXPECT_NEAR(base_of(Rotary({.dims = 12, .scaling = dynamic, .factor = 4, .max_position = 16}), 40), 103304.12, 0.01);
  EXPECT_NEAR(base_of(Rotary({.dims = 64, .scaling = ntk, .factor = 4}), 1), 41829.37, 0.01);
  EXPECT_NEAR(base_of(Rotary({.dims = 64, .scaling = dynamic, .factor = 4, .max_position = 512}), 1024), 52664, 1);
  EXPECT_NEAR(base_of(Rotary({.dims = 64, .scaling = dynamic, .factor = 4, .max_position = 512}), 512), 10000, 1e-6);
}

TEST(Rotary, ScoresDependOnDistanceAlone) {
  const Rotary r({.dims = 8});
  const Tensor q = at::randn({1, 1, 1, 8}, at::kDouble), k = at::randn({1, 1, 1, 8}, at::kDouble);
  const auto score = [&](int64_t m, int64_t n) {
    return (r(q, Positions::range(m, m + 1, 100)) * r(k, Positions::range(n, n + 1, 100))).sum().item<double>();
  };
  EXPECT_NEAR(score(5, 2), score(45, 42), 1e-12);
}

TEST(Rotary, PositionsMayDifferBySequence) {
  const Rotary r({.dims = 4});
  const Tensor x = at::randn({2, 3, 1, 4}, at::kDouble);
  const Positions ragged{at::tensor({0, 1, 2, 7, 8, 9}, at::kLong).view({2, 3}), 10};
  EXPECT_TRUE(r(x, ragged)[1].allclose(r(x.slice(0, 1, 2), Positions::range(7, 10, 10))[0]));
}

}  // namespace
}  // namespace motet
