#include "motet/bench/serve_bench.h"

#include <gtest/gtest.h>

#include "motet/bench/serve_soak.h"
#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

TEST(ServeBench, QuantilesAreValuesThatAPartDoesNotPass) {
  EXPECT_EQ(quantile({3, 1, 2, 4}, 0.5), 2);
  EXPECT_EQ(quantile({3, 1, 2, 4}, 0.95), 4);
  EXPECT_EQ(quantile({5}, 0), 5);
  EXPECT_EQ(testing::message_of<Error>([] { quantile({}, 0.5); }), "quantile: there are no values");
}

TEST(ServeBench, AMetricIsFoundByItsWholeName) {
  const std::string text = "# TYPE motet:bytes gauge\nmotet:bytes_more 3\nmotet:bytes 45\n";
  EXPECT_EQ(metric(text, "motet:bytes"), 45);
  EXPECT_EQ(testing::message_of<Error>([&] { metric(text, "motet:byte"); }), "metrics: motet:byte is missing");
}

}  // namespace
}  // namespace motet
