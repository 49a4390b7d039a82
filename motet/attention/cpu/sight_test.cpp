// What queries see, key by key, as motet/attention/attention.h words it; the oracle of cpu_test.cpp reads Sight too.
#include "motet/attention/cpu/sight.h"

#include <gtest/gtest.h>

namespace motet::cpu {
namespace {

// Tables of B = 2 sequences of 12 keys; documents: 0 none, 1 in runs, 2 that come back.
struct Tables {
  std::vector<int64_t> start{7, -3}, begin{2, 0}, end{12, 9}, documents;
  Problem p;

  Tables(int64_t T, bool causal, int64_t window, bool lengths, bool starts, int kind) {
    p.B = 2, p.T = T, p.S = 12, p.causal = causal, p.window = window;
    if (starts) p.query_start = start.data();
    if (lengths) p.key_begin = begin.data(), p.key_end = end.data();
    if (kind == 1) documents = {5, 5, 5, 1, 1, 9, 9, 9, 9, 2, 2, 2, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7};
    if (kind == 2) documents = {1, 1, 2, 2, 1, 1, 1, 2, 3, 3, 1, 2, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 6};  // row 0 alone
    if (kind > 0) p.documents = documents.data();
  }

  bool sees(int64_t b, int64_t t, int64_t s) const {
    const int64_t at = (p.query_start ? start[b] : p.S - p.T) + t;
    if (p.key_begin && (s < begin[b] || s >= end[b])) return false;
    if (p.causal && s > at) return false;
    if (p.window > 0 && at - s >= p.window) return false;
    if (!p.documents) return true;
    return at >= 0 && at < p.S && documents[b * p.S + s] == documents[b * p.S + at];
  }
};

TEST(Sight, ShowsEachQueryItsKeysAndNoOthers) {
  for (const int64_t T : {1, 5, 12, 15})
    for (const auto& [causal, window] : {std::pair(false, 0), {true, 0}, {true, 1}, {true, 4}})
      for (const bool lengths : {false, true})
        for (const bool starts : {false, true})
          for (const int kind : {0, 1, 2}) {
            const Tables tables(T, causal, window, lengths, starts, kind);
            const Sight sight(tables.p);
            for (int64_t b = 0; b < 2; ++b) {
              EXPECT_EQ(sight.holes(b), kind == 2 && b == 0);
              Span block = sight.keys(b, 0, T);
              for (int64_t t = 0; t < T; ++t) {
                const Span span = sight.keys(b, t);
                for (int64_t s = 0; s < 12; ++s) {
                  const bool inside = s >= span.begin && s < span.end;
                  const bool shown = inside && (!sight.holes(b) || sight.documents(b)[s] == sight.document(b, t));
                  ASSERT_EQ(shown, tables.sees(b, t, s))
                      << "T " << T << " causal " << causal << " window " << window << " lengths " << lengths
                      << " starts " << starts << " documents " << kind << " at " << b << "," << t << "," << s;
                  ASSERT_TRUE(!inside || (s >= block.begin && s < block.end));
                }
              }
            }
          }
}

TEST(Sight, ABlockOfQueriesReadsFromItsFirstKeyToItsLast) {
  const Tables tables(12, true, 3, false, false, 0);
  const Sight sight(tables.p);
  EXPECT_EQ(sight.keys(0, 4, 8).begin, 2);
  EXPECT_EQ(sight.keys(0, 4, 8).end, 8);
  const Tables none(3, true, 0, true, true, 0);  // row 1: queries at -3, -2 and -1
  EXPECT_TRUE(Sight(none.p).keys(1, 0, 3).empty());
  EXPECT_EQ(Sight(none.p).readable(0).begin, 2);
  EXPECT_EQ(Sight(none.p).readable(1).end, 9);
}

}  // namespace
}  // namespace motet::cpu
