// Products of bfloat16 numbers with float32 sums by tiles (AMX), on the CPU's registers or on their emulation.
//
// A sub-block of 8 queries is half of what a tile holds in rows, and the unit takes as many cycles as there are rows,
// so that the skeletons need not know. Packed panels are what a tile of the second operand is: rows of pairs,
// [pairs][16].
#if defined(MOTET_CPU_AMX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_AMX_INL_H
#undef MOTET_CPU_AMX_INL_H
#else
#define MOTET_CPU_AMX_INL_H
#endif

#include "motet/attention/cpu/parts-inl.h"
#include "motet/core/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// C (+)= A B, with pairs along the summed axis: A [part][8 or 16][depth], B [part][depth][width].
struct TileProduct {
  const float* a;
  int64_t a_row, a_part;
  const float* b;
  int64_t b_row, b_part;
  float* c;
  int64_t c_row;
  int64_t depth;  // pairs, whole tiles of them
};

/// The first of three tiles, two of sums and one of A: of 8 rows, queries, and of 16, columns. 3 and 4 are B's.
constexpr int kOfQueries = 0, kOfColumns = 5;

HWY_INLINE TileShapes tile_shapes() {
  TileShapes shapes;
  for (int i = 0; i < 3; ++i) shapes.set(kOfQueries + i, kRows, kTilePairs);
  for (int i = 3; i < kTiles; ++i) shapes.set(i, kTilePairs, kTilePairs);
  return shapes;
}

// Of operands in three parts: which of A and of B are multiplied, the smallest products first, so that a sum rounds by
// what it is in the end. The three that are left out are 2^-24 of the whole or less. Of two parts the last three are
// multiplied, and 2^-16 is left out; of one the last.
constexpr int kPartsOfProduct[][2] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
constexpr int kFirstProduct[] = {6, 5, 3, 0};  // by the number of parts

template <class Tiles, int kFirst, bool kAdd, int kSplit>
HWY_INLINE void tile_product(const TileProduct& x, int64_t width) {
  constexpr int kSecond = kFirst + 1, kA = kFirst + 2;
  constexpr bool kApart = kAdd && kSplit > 1;  // as Product's; beside rounded weights it would be nothing
  static_assert(!kAdd || kFirst == kOfQueries);
  const bool wide = width == kPanel;
  if (kAdd && !kApart) {
    Tiles::template load<kFirst>(x.c, x.c_row);
    if (wide) Tiles::template load<kSecond>(x.c + kTilePairs, x.c_row);
  } else {
    Tiles::template zero<kFirst>(), Tiles::template zero<kSecond>();
  }
  for (int i = kFirstProduct[kSplit]; i < 6; ++i) {
    const float* a = x.a + kPartsOfProduct[i][0] * x.a_part;
    const float* b = x.b + kPartsOfProduct[i][1] * x.b_part;
    for (int64_t k = 0; k < x.depth; k += kTilePairs, a += kTilePairs, b += kTilePairs * x.b_row) {
      Tiles::template load<kA>(a, x.a_row), Tiles::template load<3>(b, x.b_row);
      Tiles::template multiply<kFirst, kA, 3>();
      if (!wide) continue;
      Tiles::template load<4>(b + kTilePairs, x.b_row);
      Tiles::template multiply<kSecond, kA, 4>();
    }
  }
  HWY_ALIGN float apart[kApart ? kRows * kPanel : 1];
  float* const to = kApart ? apart : x.c;
  const int64_t row = kApart ? kPanel : x.c_row;
  Tiles::template store<kFirst>(to, row);
  if (wide) Tiles::template store<kSecond>(to + kTilePairs, row);
  for (int r = 0; kApart && r < kRows; ++r)
    for (int64_t i = 0; i < width; i += kLanes)
      store(x.c + r * x.c_row + i, hn::Add(load(x.c + r * x.c_row + i), load(apart + r * kPanel + i)));
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
