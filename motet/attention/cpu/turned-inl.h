// Products over the queries of a block: gradients of keys and values from weights and vectors of the queries.
//
// Vectors add key by key, each from a weight and a row. Tiles add [column][key], the other way round: then the weights
// are the second operand as they lie, two queries to a pair, and the vectors, the first, are turned once a block.
#if defined(MOTET_CPU_TURNED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_TURNED_INL_H
#undef MOTET_CPU_TURNED_INL_H
#else
#define MOTET_CPU_TURNED_INL_H
#endif

#include "motet/attention/cpu/tile_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// The rows of a sub-block, by its number in the block: weights [rows][32] and vectors [rows][padded width].
struct QueryRows {
  const float *weights, *x;
  int rows;
  int64_t sub;
};

template <int kMR, int kNR>
HWY_INLINE void add_turned_block(const QueryRows* subs, int count, int64_t x_row, int64_t first, float* c,
                                 int64_t c_row, int key, int column) {
  Vec sum[kMR][kNR];
  MOTET_UNROLL(8) for (int i = 0; i < kMR; ++i) MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) sum[i][j] = zero();
  for (int s = 0; s < count; ++s) {
    const float* w = subs[s].weights + key;
    const float* x = subs[s].x + first + column;
    for (int r = 0; r < subs[s].rows; ++r, w += kBackwardKeys, x += x_row) {
      Vec v[kNR];
      MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) v[j] = load(x + j * kLanes);
      MOTET_UNROLL(8) for (int i = 0; i < kMR; ++i) {
        const Vec a = set(w[i]);
        MOTET_UNROLL(4) for (int j = 0; j < kNR; ++j) sum[i][j] = fma(a, v[j], sum[i][j]);
      }
    }
  }
  float* to = c + key * c_row + column;
  MOTET_UNROLL(8)
  for (int i = 0; i < kMR; ++i) MOTET_UNROLL(4)
  for (int j = 0; j < kNR; ++j)
    store(to + i * c_row + j * kLanes, hn::Add(load(to + i * c_row + j * kLanes), sum[i][j]));
}

/// c[key][column] += sum over the queries of weights[query][key] * x[query][first + column], for a tile of 32 keys and
/// one panel of columns.
template <int kWidth>
HWY_INLINE void add_turned_panel(const QueryRows* subs, int count, int64_t x_row, int64_t first, float* c) {
  constexpr int kMR = kBlockRows, kNR = kBlockVectors<kWidth>;
  for (int key = 0; key < kBackwardKeys; key += kMR) {
    for (int i = 0; i < kMR * kWidth; i += 16) prefetch_l1(c + (key + 2 * kMR) * kWidth + i);
    for (int column = 0; column < kWidth; column += kNR * kLanes)
      add_turned_block<kMR, kNR>(subs, count, x_row, first, c, kWidth, key, column);
  }
}

/// The same of all panels of a width.
HWY_INLINE void add_turned(const QueryRows* subs, int count, int64_t width, float* c) {
  const int64_t row = padded_width(width);
  for (int64_t column = 0; column < width; column += kPanel)
    if (column_panel(width, column).width == kPanel)
      add_turned_panel<kPanel>(subs, count, row, column, c + column * kBackwardKeys);
    else
      add_turned_panel<16>(subs, count, row, column, c + column * kBackwardKeys);
}

// Sub-blocks whose queries are the pairs of one tile.
constexpr int64_t kSubsOfTile = 2 * kTilePairs / kRows;

/// Vectors of a block's queries, turned: [part][padded width][pairs of queries]. What they sum to is multiplied by
/// `factor`.
struct TurnedBlock {
  int64_t width, pairs, part, size;  // pairs of a row; floats of a part and of all
  float factor;

  TurnedBlock(const Products& products, int64_t block_rows, int64_t columns, float times)
      : width(columns),
        pairs(round_up(block_rows, 2 * kTilePairs) / 2),
        part(padded_width(width) * pairs),
        size(products.parts() * part),
        factor(times) {}
};

/// Turns `rows(s)` [8][padded width] of the sub-blocks 0 to `subs`.
template <class Rows>
HWY_INLINE void turn_queries(const Products& products, const TurnedBlock& block, int64_t subs, Rows rows, float* to) {
  static thread_local std::vector<float> staging;
  const int64_t width = block.width;
  std::fill_n(to, block.size, 0.f);
  for (int64_t first = 0; first < subs; first += kSubsOfTile) {
    staging.assign(static_cast<size_t>(width * 2 * kTilePairs), 0.f);
    for (int64_t s = first; s < std::min(first + kSubsOfTile, subs); ++s)
      unpack_transposed(rows(s), InOrder{padded_width(width)}, static_cast<int>(width), kRows,
                        staging.data() + (s - first) * kRows, 2 * kTilePairs);
    for (int64_t n = 0; n < width; ++n)
      products.split_numbers(staging.data() + n * 2 * kTilePairs, 2 * kTilePairs,
                             to + n * block.pairs + first * kRows / 2, block.part);
  }
}

/// Weights of sub-blocks from `first` on to pairs along the queries, [part][pairs][32 keys]; those of queries that are
/// not there are 0.
template <int kSplit>
HWY_INLINE void pack_turned_weights(const std::vector<QueryRows>& subs, int64_t first, int64_t pairs, float* to) {
  const int64_t part = pairs * kBackwardKeys;
  std::fill_n(to, kSplit * part, 0.f);
  for (const QueryRows& sub : subs)
    for (int r = 0; r < sub.rows; r += 2) {
      const float* w = sub.weights + r * kBackwardKeys;
      float* const o = to + ((sub.sub - first) * kRows + r) / 2 * kBackwardKeys;
      for (int key = 0; key < kBackwardKeys; key += kLanes) {
        VecWords low[kSplit], high[kSplit];
        split_weights<kSplit>(load(w + key), low), split_weights<kSplit>(load(w + kBackwardKeys + key), high);
        for (int p = 0; p < kSplit; ++p) store(o + p * part + key, paired(low[p], high[p]));
      }
    }
}

/// to [padded width][32 keys] += the same sums by tiles. A block's queries are summed apart and added in one step, so
/// that the small products of a sum do not round by what earlier blocks made of it.
struct TurnedSums {
  TileProducts& tiles;
  const Products& products;
  const TurnedBlock& block;

  HWY_NOINLINE void add(const std::vector<QueryRows>& subs, const float* turned, float* to) const {
    if (subs.empty()) return;
    const int64_t first = subs.front().sub / kSubsOfTile * kSubsOfTile,
                  end = round_up(subs.back().sub + 1, kSubsOfTile);
    const int64_t pairs = (end - first) * kRows / 2, columns = padded_width(block.width);
    float* const weights = tiles.turned_weights();
    with_parts(products.parts(),
               [&](auto number) HWY_ATTR { pack_turned_weights<number()>(subs, first, pairs, weights); });
    Destination d;
    d.stride = d.columns = kBackwardKeys, d.factor = block.factor, d.adds = true;
    for (int64_t column = 0; column < columns; column += kTogether) {
      const int64_t rows = std::min<int64_t>(kTogether, columns - column);
      for (int i = 0; i < kSubsTogether; ++i)
        d.to[i] = i * kRows < rows ? to + (column + i * kRows) * kBackwardKeys : nullptr;
      tiles.make({turned + column * block.pairs + first * kRows / 2, block.pairs, block.part, weights, kBackwardKeys,
                  pairs * kBackwardKeys, pairs, rows, kBackwardKeys},
                 d, weights);
    }
  }
};

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
