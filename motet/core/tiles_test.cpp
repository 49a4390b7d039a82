// The emulated tiles by hand, and against the CPU's where it has them; float32 products in three parts.
#include "motet/core/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "motet/core/instructions.h"

namespace motet {
namespace {

uint32_t bits(float x) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}
float number(uint32_t b) {
  float x;
  std::memcpy(&x, &b, sizeof x);
  return x;
}
// A pair of numbers that bfloat16 holds.
float pair(float first, float second) { return number(bits(first) >> 16 | (bits(second) & 0xffff0000)); }

// Tiles of `rows` x `pairs` and `pairs` x 16.
TileShapes shapes(int rows, int pairs) {
  TileShapes s;
  s.set(0, rows, 16), s.set(1, rows, pairs), s.set(2, pairs, 16);
  return s;
}

using Sums = std::vector<float>;

template <class Tiles>
Sums product(int rows, int pairs, const std::vector<float>& a, const std::vector<float>& b, Sums c) {
  Tiles::configure(shapes(rows, pairs));
  Tiles::template load<0>(c.data(), 16);
  Tiles::template load<1>(a.data(), pairs);
  Tiles::template load<2>(b.data(), 16);
  Tiles::template multiply<0, 1, 2>();
  Tiles::template store<0>(c.data(), 16);
  Tiles::release();
  return c;
}

// The sum of one row and column: `a` and `b` pairs, from c.
float one(const std::vector<float>& a, const std::vector<float>& b, float c) {
  const int pairs = static_cast<int>(a.size());
  std::vector<float> second(static_cast<size_t>(16 * pairs), 0.f);
  for (int k = 0; k < pairs; ++k) second[static_cast<size_t>(16 * k)] = b[static_cast<size_t>(k)];
  return product<EmulatedTiles>(1, pairs, a, second, Sums(16, c))[0];
}

TEST(Tiles, EachSumIsOfBothNumbersOfAllPairs) {
  std::vector<float> a, b;
  for (int i = 0; i < 8 * 12; ++i) a.push_back(pair(static_cast<float>(i % 7), static_cast<float>(-i % 5)));
  for (int i = 0; i < 12 * 16; ++i) b.push_back(pair(static_cast<float>(i % 9 - 4), static_cast<float>(i % 3)));
  Sums c(8 * 16);
  for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i);
  const Sums sums = product<EmulatedTiles>(8, 12, a, b, c);
  for (int m = 0; m < 8; ++m)
    for (int n = 0; n < 16; ++n) {
      float want = c[static_cast<size_t>(16 * m + n)];
      for (int k = 0; k < 12; ++k) {
        const int x = 12 * m + k, y = 16 * k + n;
        want += static_cast<float>((x % 7) * (y % 9 - 4) + (-x % 5) * (y % 3));
      }
      EXPECT_EQ(sums[static_cast<size_t>(16 * m + n)], want) << m << " " << n;
    }
}

// First numbers are summed apart from second ones, each product with one rounding, to the even of two; then both sums,
// and what was there last.
TEST(Tiles, SumsRoundInTheOrderOfTheManual) {
  const float big = 16777216, one_more = 1;                                          // 2^24, whose neighbour is 2 away
  EXPECT_EQ(one({pair(big, 0), pair(1, 0)}, {pair(1, 0), pair(1, 0)}, 0), big);      // 2^24 + 1 to the even
  EXPECT_EQ(one({pair(big, 1), pair(0, 1)}, {pair(1, 1), pair(0, 1)}, 0), big + 2);  // 1 + 1 apart
  EXPECT_EQ(one({pair(1, 1)}, {pair(1, 1)}, big), big + 2);                          // and before what was there
  EXPECT_EQ(one({pair(one_more, 0)}, {pair(1, 0)}, big), big);
  EXPECT_EQ(one({pair(1.0078125f, 0), pair(-1, 0)}, {pair(1.0078125f, 0), pair(1, 0)}, 0), 0.01568603515625f);  // exact
  // A product beyond a float's range is none yet.
  EXPECT_EQ(one({pair(-0x1p63f, 0), pair(0x1p64f, 0)}, {pair(0x1p64f, 0), pair(0x1p64f, 0)}, 0), 0x1p127f);
}

TEST(Tiles, NumbersBelowTheNormalOnesAreZero) {
  const float least = number(0x00800000), below = number(0x00400000);
  EXPECT_EQ(one({pair(below, 0)}, {pair(1e30f, 0)}, 0), 0) << "an operand";
  EXPECT_EQ(one({pair(0, 0)}, {pair(0, 0)}, below), 0) << "a sum";
  EXPECT_EQ(one({pair(least, 0)}, {pair(0.5f, 0)}, 0), 0) << "a product";
  EXPECT_EQ(one({pair(least, 0)}, {pair(1, 0)}, 0), least);
  EXPECT_EQ(one({pair(least, -1.5f * least)}, {pair(1, 1)}, 0), 0) << "a difference";
}

TEST(Tiles, LoadingClearsWhatLiesBeyondTheShape) {
  const std::vector<float> full(16 * 16, pair(1, 1));
  EXPECT_EQ(product<EmulatedTiles>(16, 16, full, full, Sums(16 * 16))[255], 32);
  EXPECT_EQ(product<EmulatedTiles>(2, 3, full, full, Sums(16 * 16))[16], 6);
}

TEST(TilesDeathTest, ShapesThatDoNotFitAreAFault) {
  const auto wrong = [] {
    TileShapes s = shapes(8, 4);
    s.set(2, 5, 16);
    EmulatedTiles::configure(s);
    EmulatedTiles::multiply<0, 1, 2>();
  };
  EXPECT_DEATH(wrong(), "do not fit");
  EXPECT_DEATH(EmulatedTiles::zero<0>(), "without a shape");
}

#if defined(__x86_64__)
// Numbers of all sizes, with some below the normal ones, infinite and none.
TEST(Tiles, OfTheCpuGiveTheBitsOfTheEmulation) {
  if (const std::string reason = why_not_amx(); !reason.empty()) GTEST_SKIP() << reason;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int rows = 1 + static_cast<int>(random() % 16), pairs = 1 + static_cast<int>(random() % 16);
    const bool any = round % 4 == 0;
    const auto some = [&](int count) {
      std::vector<float> x;
      for (int i = 0; i < count; ++i) {
        const auto finite = [&] {
          return any ? random() : (random() & 0x80ff0000) + 0x3e000000 + (random() & 0x1000000);
        };
        const uint32_t first = static_cast<uint32_t>(finite()), second = static_cast<uint32_t>(finite());
        x.push_back(number(first >> 16 | (second & 0xffff0000)));
      }
      return x;
    };
    const std::vector<float> a = some(rows * pairs), b = some(pairs * 16);
    Sums c(static_cast<size_t>(rows * 16));
    for (float& x : c)
      x = any ? number(static_cast<uint32_t>(random())) : std::ldexp(static_cast<float>(random()), -30);
    const Sums own = product<HardwareTiles>(rows, pairs, a, b, c), loops = product<EmulatedTiles>(rows, pairs, a, b, c);
    for (size_t i = 0; i < own.size(); ++i)
      if (!std::isnan(own[i]) || !std::isnan(loops[i])) {
        EXPECT_EQ(bits(own[i]), bits(loops[i])) << round << " " << i;
      }
  }
}
#endif

}  // namespace
}  // namespace motet
