#include "motet/attention/cuda/sight.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace motet::cuda {
namespace {

// Spans against every pair one by one: what some see lies within, what all see is exactly the span, unless documents
// hide something or the block ends behind the last row, where less may be said.
TEST(Sight, SpansAreThoseOfEveryPair) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int trial = 0; trial < 20000; ++trial) {
    Args a{};
    a.T = 1 + below(24), a.S = 1 + below(24), a.causal = below(3) > 0, a.window = below(2) ? 1 + below(20) : 0;
    const int64_t start = below(a.S + 4) - 2, begin = below(a.S + 1), end = begin + below(a.S + 2);
    std::vector<int64_t> documents(a.S);
    for (int64_t& each : documents) each = below(2);
    if (below(2)) a.query_start = &start;
    if (below(2)) a.key_begin = &begin, a.key_end = &end;
    if (below(8) == 0) a.documents = documents.data();
    const Sight sight(a, 0);
    const bool keys = below(2);
    const int rows = keys ? a.T : a.S, others = keys ? a.S : a.T, first = below(rows), last = first + 1 + below(12);
    const auto sees = [&](int own, int other) { return keys ? sight.sees(own, other) : sight.sees(other, own); };
    const Span some = keys ? sight.keys(first, last) : sight.queries(first, last);
    const Span all = keys ? sight.common_keys(first, last) : sight.common_queries(first, last);
    const bool exact = !a.documents && last <= rows;
    for (int other = 0; other < others; ++other) {
      bool one = false, every = true;
      for (int own = first; own < last && own < rows; ++own) one |= sees(own, other), every &= sees(own, other);
      const auto lies = [&](Span span) { return other >= span.begin && other < span.end; };
      ASSERT_TRUE(!one || lies(some)) << "trial " << trial << ", " << other;
      ASSERT_TRUE(every || !lies(all)) << "trial " << trial << ", " << other;
      ASSERT_TRUE(!exact || every == lies(all)) << "trial " << trial << ", " << other;
    }
  }
}

}  // namespace
}  // namespace motet::cuda
