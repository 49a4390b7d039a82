// Products of bfloat16 numbers with float32 sums by tiles (AMX), on the CPU's registers or on their emulation.
//
// Two tiles of rows meet two of columns, so that each tile that is loaded is multiplied twice and the loads, half as
// long as the products, cost nothing. Packed panels are what a tile of the second operand is: rows of pairs,
// [pairs][16].
#if defined(MOTET_CPU_AMX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_AMX_INL_H
#undef MOTET_CPU_AMX_INL_H
#else
#define MOTET_CPU_AMX_INL_H
#endif

#include <utility>

#include "motet/attention/cpu/parts-inl.h"
#include "motet/core/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// Rows and columns of one product.
constexpr int kTogether = 2 * kTileRows;
static_assert(kTogether == kPanel);

/// A B, with pairs along the summed axis: A [part][up to 32 rows][depth], B [part][depth][up to 32 columns]. Whole
/// tiles of A are read.
struct TileProduct {
  const float* a;
  int64_t a_row, a_part;
  const float* b;
  int64_t b_row, b_part;
  int64_t depth;  // pairs, whole tiles of them
  int64_t rows, columns;
};

/// Where the sums of a product go, rows `row` floats apart, and whether they are added to what is there.
struct TileSums {
  float* to;
  int64_t row;
  bool adds;
};

HWY_INLINE TileShapes tile_shapes() {
  TileShapes shapes;
  for (int i = 0; i < kTiles; ++i) shapes.set(i, kTileRows, kTilePairs);
  return shapes;
}

// Which parts of A and of B are multiplied, of operands in one, two and three parts: each shares one with the product
// before it where it can, and the largest comes last. Of three parts three products are left out, 2^-24 of the whole or
// less, of two one, 2^-16.
struct PartsOfProduct {
  int a, b;
};
template <int kSplit>
constexpr std::array<PartsOfProduct, kSplit*(kSplit + 1) / 2> kProducts;
template <>
constexpr std::array<PartsOfProduct, 1> kProducts<1> = {{{0, 0}}};
template <>
constexpr std::array<PartsOfProduct, 3> kProducts<2> = {{{0, 1}, {1, 0}, {0, 0}}};
template <>
constexpr std::array<PartsOfProduct, 6> kProducts<3> = {{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}}};

// Tiles 0 to 3 are the sums, 4 and 5 those of A, 6 and 7 those of B.
template <class Tiles, int kSplit, bool kTall, bool kWide>
HWY_INLINE void sums_by_tiles(const TileProduct& x, const TileSums& c, const float* next) {
  constexpr int kLines = 64 / (kSplit + 1), kLine = 16;  // of the next B in each step: all of one of 32 columns
  float* const low = c.to + kTileRows * c.row;
  if (c.adds) {
    Tiles::template load<0>(c.to, c.row);
    if (kWide) Tiles::template load<1>(c.to + kTilePairs, c.row);
    if (kTall) Tiles::template load<2>(low, c.row);
    if (kTall && kWide) Tiles::template load<3>(low + kTilePairs, c.row);
  } else {
    Tiles::template zero<0>(), Tiles::template zero<1>(), Tiles::template zero<2>(), Tiles::template zero<3>();
  }
  const int64_t a_row = x.a_row, a_part = x.a_part, b_row = x.b_row, b_part = x.b_part;
  const float *a = x.a, *b = x.b;
  for (int64_t k = 0; k < x.depth; k += kTilePairs, a += kTilePairs, b += kTilePairs * b_row) {
    const auto step = [&](auto number) HWY_ATTR {
      constexpr size_t n = number();
      constexpr PartsOfProduct parts = kProducts<kSplit>[n], before = kProducts<kSplit>[n ? n - 1 : 0];
      if constexpr (n == 0 || parts.a != before.a) {
        Tiles::template load<4>(a + parts.a * a_part, a_row);
        if (kTall) Tiles::template load<5>(a + parts.a * a_part + kTileRows * a_row, a_row);
      }
      if constexpr (n == 0 || parts.b != before.b) {
        Tiles::template load<6>(b + parts.b * b_part, b_row);
        if (kWide) Tiles::template load<7>(b + parts.b * b_part + kTilePairs, b_row);
      }
      MOTET_UNROLL(32) for (int i = 0; i < kLines; ++i) prefetch_l1(next + i * kLine);
      next += kLines * kLine;
      Tiles::template multiply<0, 4, 6>();
      if (kWide) Tiles::template multiply<1, 4, 7>();
      if (kTall) Tiles::template multiply<2, 5, 6>();
      if (kTall && kWide) Tiles::template multiply<3, 5, 7>();
    };
    [&]<size_t... kNumber>(std::index_sequence<kNumber...>) HWY_ATTR {
      (step(std::integral_constant<size_t, kNumber>()), ...);
    }(std::make_index_sequence<kProducts<kSplit>.size()>());
  }
  Tiles::template store<0>(c.to, c.row);
  if (kWide) Tiles::template store<1>(c.to + kTilePairs, c.row);
  if (kTall) Tiles::template store<2>(low, c.row);
  if (kTall && kWide) Tiles::template store<3>(low + kTilePairs, c.row);
}

/// c (+)= A B. Meanwhile `next`, the second operand of the product after this one, comes into L1.
template <class Tiles, int kSplit>
HWY_INLINE void tile_product(const TileProduct& x, const TileSums& c, const float* next) {
  const bool wide = x.columns > kTilePairs;
  if (x.rows > kTileRows)
    wide ? sums_by_tiles<Tiles, kSplit, true, true>(x, c, next) : sums_by_tiles<Tiles, kSplit, true, false>(x, c, next);
  else
    wide ? sums_by_tiles<Tiles, kSplit, false, true>(x, c, next)
         : sums_by_tiles<Tiles, kSplit, false, false>(x, c, next);
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
