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
#include "motet/attention/cpu/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// C (+)= A B of a sub-block, with pairs along the summed axis: A [part][8][depth], B [part][depth][width].
struct TileProduct {
  const float* a;
  int64_t a_row, a_part;
  const float* b;
  int64_t b_row, b_part;
  float* c;
  int64_t c_row;
  int64_t depth;  // pairs, whole tiles of them
};

/// Tiles 0 and 1: 16 sums of 8 rows each; 2, and 3 and 4: 16 pairs of both operands.
HWY_INLINE TileShapes tile_shapes() {
  TileShapes shapes;
  for (const int sums_or_first : {0, 1, 2}) shapes.set(sums_or_first, kRows, kTilePairs);
  for (const int second : {3, 4}) shapes.set(second, kTilePairs, kTilePairs);
  return shapes;
}

// Of float32 operands in three parts: which of A and of B are multiplied, the smallest products first, so that a sum
// rounds by what it is in the end. The three that are left out are 2^-24 of the whole or less.
constexpr int kPartsOfProduct[][2] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};

template <class Tiles, bool kAdd, int kSplit>
HWY_INLINE void tile_product(const TileProduct& x, int64_t width) {
  const bool wide = width == kPanel;
  if (kAdd) {
    Tiles::template load<0>(x.c, x.c_row);
    if (wide) Tiles::template load<1>(x.c + kTilePairs, x.c_row);
  } else {
    Tiles::template zero<0>(), Tiles::template zero<1>();
  }
  for (int i = kSplit == kParts ? 0 : 5; i < 6; ++i) {
    const float* a = x.a + kPartsOfProduct[i][0] * x.a_part;
    const float* b = x.b + kPartsOfProduct[i][1] * x.b_part;
    for (int64_t k = 0; k < x.depth; k += kTilePairs, a += kTilePairs, b += kTilePairs * x.b_row) {
      Tiles::template load<2>(a, x.a_row), Tiles::template load<3>(b, x.b_row);
      Tiles::template multiply<0, 2, 3>();
      if (!wide) continue;
      Tiles::template load<4>(b + kTilePairs, x.b_row);
      Tiles::template multiply<1, 2, 4>();
    }
  }
  Tiles::template store<0>(x.c, x.c_row);
  if (wide) Tiles::template store<1>(x.c + kTilePairs, x.c_row);
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
