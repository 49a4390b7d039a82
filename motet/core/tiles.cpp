#include "motet/core/tiles.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace motet {
namespace {

struct Tile {
  uint32_t row[kTileRows][kTilePairs];
};

struct Registers {
  TileShapes shapes;
  bool configured = false;
  Tile tile[kTiles];
};
thread_local Registers registers;

void want(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tiles: %s\n", what);
  std::abort();
}

int rows_of(int tile) { return registers.shapes.rows[tile]; }
int columns_of(int tile) { return registers.shapes.bytes[tile] / 4; }

float number(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
uint32_t bits(float x) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}

// Numbers that are too small for a normal float count as 0, going in and coming out, whatever the thread's mode is.
float flushed(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.f, x) : x; }
// One rounding: a product of two bfloat16 numbers is a float, and where it leaves a float's range the library does it.
float multiply_add(float a, float b, float c) {
  const float x = flushed(a), y = flushed(b), product = x * y, size = std::fabs(product);
  const bool exact = (size >= FLT_MIN && size <= FLT_MAX) || x == 0 || y == 0;
  return flushed(exact ? product + c : std::fma(x, y, c));
}

}  // namespace

void EmulatedTiles::configure(const TileShapes& shapes) {
  want(shapes.palette == 1 && shapes.start_row == 0, "the palette is not 1");
  for (int i = 0; i < kTiles; ++i)
    want(shapes.rows[i] <= kTileRows && shapes.bytes[i] <= 4 * kTilePairs &&
             (shapes.rows[i] > 0) == (shapes.bytes[i] > 0),
         "a shape is no tile's");
  registers.shapes = shapes, registers.configured = true;
  std::memset(registers.tile, 0, sizeof registers.tile);
}

void EmulatedTiles::release() { registers.configured = false; }

void EmulatedTiles::zero_tile(int tile) {
  want(registers.configured && rows_of(tile) > 0, "a tile without a shape is zeroed");
  registers.tile[tile] = {};
}

void EmulatedTiles::load_tile(int tile, const float* from, int64_t stride) {
  zero_tile(tile);
  for (int r = 0; r < rows_of(tile); ++r)
    std::memcpy(registers.tile[tile].row[r], from + r * stride, 4 * static_cast<size_t>(columns_of(tile)));
}

void EmulatedTiles::store_tile(int tile, float* to, int64_t stride) {
  want(registers.configured && rows_of(tile) > 0, "a tile without a shape is stored");
  for (int r = 0; r < rows_of(tile); ++r)
    std::memcpy(to + r * stride, registers.tile[tile].row[r], 4 * static_cast<size_t>(columns_of(tile)));
}

// The first numbers of all pairs are summed from 0, the second ones apart; the two sums meet before the tile's.
void EmulatedTiles::multiply_tiles(int sum, int a, int b) {
  want(registers.configured && rows_of(sum) > 0 && rows_of(sum) == rows_of(a) && columns_of(a) == rows_of(b) &&
           columns_of(sum) == columns_of(b) && sum != a && sum != b && a != b,
       "shapes of a product do not fit");
  for (int m = 0; m < rows_of(sum); ++m) {
    float first[kTilePairs] = {}, second[kTilePairs] = {};
    for (int k = 0; k < columns_of(a); ++k)
      for (int n = 0; n < columns_of(sum); ++n) {
        const uint32_t x = registers.tile[a].row[m][k], y = registers.tile[b].row[k][n];
        first[n] = multiply_add(number(x << 16), number(y << 16), first[n]);
        second[n] = multiply_add(number(x & 0xffff0000), number(y & 0xffff0000), second[n]);
      }
    for (int n = 0; n < columns_of(sum); ++n) {
      uint32_t& to = registers.tile[sum].row[m][n];
      to = bits(flushed(flushed(number(to)) + flushed(first[n] + second[n])));
    }
  }
}

}  // namespace motet
