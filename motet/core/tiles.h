#pragma once
#include <cstdint>

// The tile registers of AMX, as the CPU has them and as loops, under the same names: what computes with them is a
// template over either.
namespace motet {

inline constexpr int kTiles = 8, kTileRows = 16, kTilePairs = 16;  // pairs of bfloat16, or float32 numbers, of a row

/// The shapes of all tiles, as ldtilecfg reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};

  void set(int tile, int tile_rows, int pairs) {
    rows[tile] = static_cast<uint8_t>(tile_rows), bytes[tile] = static_cast<uint16_t>(4 * pairs);
  }
};
static_assert(sizeof(TileShapes) == 64);

#if defined(__x86_64__)
/// Instructions by their names, because compilers take them only where all of a function may use them. The process
/// must have been given the tiles (why_not_amx of instructions.h).
struct HardwareTiles {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const float* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(4 * stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(4 * stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};
#endif

/// The same as loops, by the pseudocode of Intel's manual; each thread has tiles of its own, as on the CPU. Where the
/// CPU raises a fault (shapes that do not fit each other, no shapes) this aborts.
struct EmulatedTiles {
  static void configure(const TileShapes&);
  static void release();
  static void zero_tile(int tile);
  static void load_tile(int tile, const float* from, int64_t stride);
  static void store_tile(int tile, float* to, int64_t stride);
  static void multiply_tiles(int sum, int a, int b);

  template <int kTile>
  static void zero() {
    zero_tile(kTile);
  }
  template <int kTile>
  static void load(const float* from, int64_t stride) {
    load_tile(kTile, from, stride);
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    store_tile(kTile, to, stride);
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    multiply_tiles(kSum, kA, kB);
  }
};

}  // namespace motet
