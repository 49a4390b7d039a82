#include "motet/probe/order.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"

namespace motet {
namespace {

OrderStatistics in_parts(const Tensor& values, int64_t part) {
  OrderStream stream;
  for (int64_t at = 0; at < values.numel(); at += part) stream.add(values.slice(0, at, at + part));
  return stream.statistics();
}

TEST(Order, IsThatOfAllNumbersSortedAtOnce) {
  at::manual_seed(5);
  for (const double shift : {0.0, 30.0}) {
    const Tensor x = at::randn({5001}, at::kDouble).pow(3) * 7 + shift;
    const Tensor sorted = std::get<0>(x.abs().sort(0, true)), d = x - x.mean();
    for (const int64_t part : {1000, 77}) {
      const OrderStatistics s = in_parts(x, part);
      EXPECT_EQ(s.count, 5001);
      for (size_t i = 0; i < s.largest.size(); ++i)
        EXPECT_EQ(s.largest[i], sorted[OrderStatistics::kRanks[i] - 1].item<double>());
      EXPECT_NEAR(s.median / sorted[2500].item<double>(), 1, 1e-3) << shift;
      const double kurtosis = (d.pow(4).mean() / d.square().mean().square()).item<double>();
      EXPECT_NEAR(s.kurtosis / kurtosis, 1, 1e-9);
    }
  }
  EXPECT_NEAR(in_parts(at::randn({200'000}), 65'536).kurtosis, 3, 0.1);
}

TEST(Order, OfFewNumbersTheSmallestStandsForRanksThatAreNotThere) {
  const OrderStatistics s = in_parts(at::tensor({-3.0, 1.0, 2.0}, at::kDouble), 2);
  EXPECT_EQ(s.largest, (std::array<double, 5>{3, 2, 1, 1, 1}));
  EXPECT_NEAR(s.median, 2, 2e-3);
  EXPECT_THROW(OrderStream().statistics(), Error);
}

}  // namespace
}  // namespace motet
