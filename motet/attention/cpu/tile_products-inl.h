// Products of up to four sub-blocks of a head together, as tiles make them: 32 rows by 32 columns. Where sub-blocks lie
// apart, or sums are to be scaled or added, they come into L1 first and then where they belong.
#if defined(MOTET_CPU_TILE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_TILE_PRODUCTS_INL_H
#undef MOTET_CPU_TILE_PRODUCTS_INL_H
#else
#define MOTET_CPU_TILE_PRODUCTS_INL_H
#endif

#include "motet/attention/cpu/products-inl.h"
#include "motet/attention/cpu/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// Sub-blocks whose products are made together.
constexpr int kSubsTogether = kTogether / kRows;

/// The sub-blocks of a group (group.h): tiles take as many at once as they can.
inline int64_t group_of(const Products& products, int64_t planned) {
  return products.tiles() ? round_up(planned, kSubsTogether) : planned;
}

/// Calls work(first, subs) for sub-blocks [first, end), so many at once.
template <class Work>
HWY_INLINE void each_together(int64_t first, int64_t end, int64_t together, const Work& work) {
  for (; first < end; first += together) work(first, static_cast<int>(std::min(together, end - first)));
}

/// Rows of up to kSubsTogether sub-blocks as a first operand: pairs [part][rows][row]. Sums of their products are
/// multiplied by `factor`.
struct TileRows {
  const float* data;
  int64_t row, part;
  int subs;
  float factor = 1;
};

/// Rows of a head of a block as such an operand; behind the last one a product's rows more, which it may read.
struct PartsOfBlock {
  int64_t row, part, size;  // pairs of a row; floats of a part and of all
  float factor;

  PartsOfBlock(const Products& products, int64_t block_rows, int64_t width, float times)
      : row(products.pairs(width)),
        part((block_rows + kTogether - kRows) * row),
        size(products.parts() * part),
        factor(times) {}
  TileRows rows(const float* head, int64_t first, int subs) const { return {at(head, first), row, part, subs, factor}; }
  template <class Float>
  Float* at(Float* head, int64_t sub) const {
    return head + sub * kRows * row;
  }
};

/// Weights [8][keys] of a sub-block and the columns that it has; none: it sees nothing.
struct Weights {
  const float* data;
  Span part;
};

/// Where the sums of a product go: eight rows from each of `to` on, `stride` apart; null: nowhere.
struct Destination {
  std::array<float*, kSubsTogether> to{};
  int64_t stride = 0, columns = 0;
  float factor = 1;
  bool adds = false;
};

class TileProducts {
 public:
  /// `block_rows`: queries whose weights are turned at once, at most.
  TileProducts(const Products& products, Workspace& space, int64_t block_rows) : products_(products), space_(space) {
    const int64_t turned = round_up(block_rows, 2 * kTilePairs) / 2 * kBackwardKeys;
    const int64_t most = std::max<int64_t>(turned, kTogether * kForwardKeys / 2);
    weights_ = space.reserve(products.tiles() ? products.parts() * most : 0);
  }

  /// Scores of a head over the columns of a part of a tile of kKeys: k from the part's first key on; to(i) is where
  /// those of sub-block i go, [8][kKeys], or null. `next` is what the product after these reads, as tile_product's.
  template <int kKeys, class To>
  HWY_INLINE void scores(const TileRows& q, const float* k, int64_t columns, const To& to, const float* next) {
    const int64_t panel = kPanel * q.row * products_.parts();
    Destination d;
    d.stride = kKeys, d.columns = kPanel, d.factor = q.factor;
    for (int64_t column = 0; column < columns; column += kPanel, k += panel) {
      for (int i = 0; i < q.subs; ++i) {
        float* const o = to(i);
        d.to[i] = o ? o + column : nullptr;
      }
      make({q.data, q.row, q.part, k, kPanel, q.row * kPanel, q.row, q.subs * kRows, kPanel}, d,
           column + kPanel < columns ? k + panel : next);
    }
  }

  /// Weights of a tile of kKeys on their way to `values`; from(i) are those of sub-block i. What they lack is 0. They
  /// stay until weights are asked for again.
  template <int kKeys, class From>
  HWY_INLINE TileRows weights(int subs, const From& from) {
    constexpr int64_t kPairs = kKeys / 2, kPart = kTogether * kPairs;
    for (int i = 0; i < subs; ++i) {
      const Weights w = from(i);
      const int64_t count = std::max<int64_t>(w.part.end - w.part.begin, 0);
      float* row = turned_weights() + i * kRows * kPairs;
      for (int r = 0; r < kRows; ++r, row += kPairs) {
        for (int p = 0; count < kKeys && p < products_.parts(); ++p) std::fill_n(row + p * kPart, kPairs, 0.f);
        if (count) products_.pair_weights(w.data + r * kKeys + w.part.begin, count, row + w.part.begin / 2, kPart);
      }
    }
    return {turned_weights(), kPairs, kPart, subs};
  }

  /// out(i) [8][padded width] += u v over the columns of a part of a tile of kKeys; null is left out.
  template <int kKeys, class Out>
  HWY_INLINE void values(const TileRows& u, const float* v, Span part, int64_t width, const Out& out,
                         const float* next) {
    const int64_t row = padded_width(width), depth = (part.end - part.begin) / 2;
    Destination d;
    d.stride = row, d.adds = true;
    for (int64_t column = 0; column < row; column += kPanel) {
      d.columns = column_panel(width, column).width;
      for (int i = 0; i < u.subs; ++i) {
        float* const o = out(i);
        d.to[i] = o ? o + column : nullptr;
      }
      const auto panel = [&](int64_t at) {
        return v + products_.panel_floats(at * kKeys) + part.begin / 2 * d.columns;
      };
      make({u.data + part.begin / 2, u.row, u.part, panel(column), d.columns, kKeys / 2 * d.columns, depth,
            u.subs * kRows, d.columns},
           d, column + kPanel < row ? panel(column + kPanel) : next);
    }
  }

  /// Memory for weights that are turned: second operands of so many pairs and 32 columns, in parts.
  float* turned_weights() const { return space_.get(weights_); }

  HWY_NOINLINE void make(const TileProduct& x, const Destination& to, const float* next) {
    if (goes_straight(x, to)) return products_.by_tiles(x, {to.to[0], to.stride, to.adds}, next);
    products_.by_tiles(x, {sums_, kTogether, false}, next);
    if (!to.adds)
      put<kPanel, false>(to, sums_);
    else if (to.columns == kPanel)
      put<kPanel, true>(to, sums_);
    else
      put<kTilePairs, true>(to, sums_);
  }

 private:
  // Whether whole tiles lie row behind row where they belong. Sums of parts are summed apart: beside what is there the
  // small ones would be rounded away.
  bool goes_straight(const TileProduct& x, const Destination& d) const {
    if (d.factor != 1 || (d.adds && products_.parts() > 1) || x.rows % kTileRows || !d.to[0]) return false;
    for (int64_t i = 1; i < x.rows / kRows; ++i)
      if (d.to[i] != d.to[0] + i * kRows * d.stride) return false;
    return true;
  }

  template <int kColumns, bool kAdds>
  HWY_INLINE static void put(const Destination& d, const float* from) {
    const Vec factor = set(d.factor);
    const int64_t stride = d.stride;
    for (float* const to : d.to) {
      for (int r = 0; to && r < kRows; ++r) MOTET_UNROLL(4) for (int c = 0; c < kColumns; c += kLanes) {
          float* const at = to + r * stride + c;
          const Vec x = load(from + r * kTogether + c);
          store(at, kAdds ? fma(factor, x, load(at)) : hn::Mul(factor, x));
        }
      from += kRows * kTogether;
    }
  }

  const Products& products_;
  const Workspace& space_;
  size_t weights_;
  alignas(64) float sums_[kTogether * kPanel];
};

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
