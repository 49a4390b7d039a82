// Products of tiles of keys with queries and with weights, as the CPU multiplies: float32 numbers, pairs of bfloat16 or
// tiles. The skeletons see operands in a room of so many floats and ask nothing else.
#if defined(MOTET_CPU_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_PRODUCTS_INL_H
#undef MOTET_CPU_PRODUCTS_INL_H
#else
#define MOTET_CPU_PRODUCTS_INL_H
#endif

#include "motet/attention/cpu/amx-inl.h"
#include "motet/attention/cpu/bf16-inl.h"
#include "motet/attention/cpu/call.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// Rows [t0, t0 + 8) of a head of x [B,T,H,width], times factor, to [8][stride]; rows beyond `count` and columns beyond
/// the width are 0.
HWY_NOINLINE void gather_queries(const Operand& x, int64_t b, const SubBlock& sub, int64_t head, int64_t width,
                                 int64_t stride, float factor, float* to) {
  const Vec f = set(factor);
  for (int r = 0; r < kRows; ++r, to += stride) {
    if (r >= sub.count) {
      std::fill_n(to, stride, 0.f);
      continue;
    }
    const int64_t from = b * x.batch_stride + (sub.t0 + r) * x.row_stride + head * x.head_stride;
    const float* row = to;
    if (x.type == Type::float32) {
      row = static_cast<const float*>(x.data) + from;
      // Rows of a head lie a page apart, where the hardware does not look ahead: the next sub-block's come meanwhile.
      for (int64_t i = 0; i < width; i += 16) prefetch_l2(row + kRows * x.row_stride + i);
    } else {
      widen_row(x.data, x.type, from, width, to);
    }
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) store(to + i, hn::Mul(f, load(row + i)));
    for (; i < width; ++i) to[i] = factor * row[i];
    for (; i < stride; ++i) to[i] = 0;
  }
}

/// scores[8][kKeys] of one head over the columns of a part: q [8][q_stride], k panels from the part's first on.
template <int kKeys>
HWY_INLINE void score_tile(const float* q, int64_t q_stride, const float* k, int64_t depth, int rows, int columns,
                           float* scores, const Ahead* ahead) {
  for (int c = 0; c < columns; c += kPanel) {
    const int64_t line = c / kPanel * depth / kStepsOfLine;
    product_columns<kPanel, false>({q, q_stride, 1, k + c * depth, kPanel, scores + c, kKeys, depth, ahead, line},
                                   rows);
  }
}

/// Whether rows of bfloat16 numbers are pairs as they lie: every one starts at a whole pair.
HWY_INLINE bool rows_in_pairs(const Operand& x, int64_t width) {
  const bool even = (x.row_stride | x.head_stride | x.batch_stride | width) % 2 == 0;
  return x.type == Type::bfloat16 && even && reinterpret_cast<uintptr_t>(x.data) % sizeof(float) == 0;
}

/// Whether q, k and v are in bfloat16 and what is turned, k and in a backward pass v, lies in pairs.
HWY_INLINE bool lies_in_pairs(const Problem& p, bool backward) {
  return p.q.type == Type::bfloat16 && p.v.type == Type::bfloat16 && rows_in_pairs(p.k, p.D) &&
         (!backward || rows_in_pairs(p.v, p.E));
}

/// How operands are stored: as float32, as the bfloat16 pairs that they are, or as bfloat16 parts.
enum class Storage : uint8_t { floats, pairs, parts };

class Products {
 public:
  explicit Products(const Call& call) : Products(call, lies_in_pairs(call.p, false)) {
    if (kHasPairs && call.unit == Multiplier::pairs && lies_in_pairs(p_, false))
      unit_ = Multiplier::pairs, storage_ = Storage::pairs;
  }
  /// Of a backward pass, where vectors have no pairs: their gradients are those of float32 products.
  Products(const Call& call, const Incoming& from)
      : Products(call, from.dout.type == Type::bfloat16 && lies_in_pairs(call.p, true)) {}

  Storage storage() const { return storage_; }
  /// Of how many bfloat16 numbers an operand of tiles, or a weight on its way to them, is made.
  int parts() const { return parts_; }
  /// What queries are multiplied by on their way to a product, and what is left for its sums.
  float query_scale() const { return storage_ == Storage::pairs ? 1 : static_cast<float>(p_.scale); }
  float scale_left() const { return storage_ == Storage::pairs ? static_cast<float>(p_.scale) : 1; }
  bool tiles() const { return unit_ == Multiplier::tiles || unit_ == Multiplier::emulated_tiles; }
  /// Pairs of a row along the summed axis; tiles want whole ones, and what is beyond the width is 0.
  int64_t pairs(int64_t width) const { return tiles() ? round_up((width + 1) / 2, kTilePairs) : width / 2; }
  /// Floats' room of a row along the summed axis, and of numbers in column panels.
  int64_t row_floats(int64_t width) const { return storage_ == Storage::floats ? width : pairs(width) * parts_; }
  int64_t panel_floats(int64_t numbers) const { return storage_ == Storage::floats ? numbers : numbers / 2 * parts_; }

  /// What a thread does before its first product and after its last.
  void begin() const {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    if (unit_ == Multiplier::tiles) HardwareTiles::configure(tile_shapes());
#endif
    if (unit_ == Multiplier::emulated_tiles) EmulatedTiles::configure(tile_shapes());
  }
  void end() const {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    if (unit_ == Multiplier::tiles) HardwareTiles::release();
#endif
    if (unit_ == Multiplier::emulated_tiles) EmulatedTiles::release();
  }

  /// The queries of a head for `score`: scaled, or as they come in pairs of bfloat16, for scaling would round them
  /// again. Parts lie `part` apart.
  void gather(int64_t b, const SubBlock& sub, int64_t head, float* to, int64_t part = 0) const {
    const float scale = static_cast<float>(p_.scale);
    if (storage_ == Storage::floats) return gather_queries(p_.q, b, sub, head, p_.D, p_.D, scale, to);
    if (storage_ == Storage::parts) {
      static thread_local std::vector<float> wide;
      wide.resize(static_cast<size_t>(kRows * p_.D));
      gather_queries(p_.q, b, sub, head, p_.D, p_.D, scale, wide.data());
      return split_rows(wide.data(), p_.D, p_.D, to, part);
    }
    const int64_t row = pairs(p_.D);
    const uint16_t* from = static_cast<const uint16_t*>(p_.q.data) + b * p_.q.batch_stride + head * p_.q.head_stride;
    std::fill_n(to, kRows * row, 0.f);
    for (int r = 0; r < sub.count; ++r)
      std::memcpy(to + r * row, from + (sub.t0 + r) * p_.q.row_stride, p_.D * sizeof(uint16_t));
  }

  /// Parts of 8 rows of `width` numbers, [8][pairs] each, `part` apart.
  HWY_NOINLINE void split_rows(const float* from, int64_t stride, int64_t width, float* to, int64_t part) const {
    const int64_t row = pairs(width);
    for (int p = 0; p < parts_; ++p) std::fill_n(to + p * part, kRows * row, 0.f);
    for (int r = 0; r < kRows; ++r) split_numbers(from + r * stride, width, to + r * row, part);
  }

  /// Parts of numbers in a row, `stride` apart, in pairs.
  HWY_INLINE void split_numbers(const float* from, int64_t count, float* to, int64_t stride) const {
    with_parts(parts_, [&](auto number) HWY_ATTR { split_row<number()>(from, count, to, stride); });
  }

  /// tile_product with the tiles of the call.
  HWY_NOINLINE void by_tiles(const TileProduct& x, const TileSums& c, const float* next) const {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    if (unit_ == Multiplier::tiles) return split_product<HardwareTiles>(x, c, next);
#endif
    split_product<EmulatedTiles>(x, c, next);
  }

  /// Columns of a row of weights to pairs, rounded or in parts that lie `stride` apart: parts in the order of
  /// pack_parts_columns, others in their own.
  HWY_INLINE void pair_weights(const float* from, int64_t count, float* to, int64_t stride) const {
    if (storage_ == Storage::parts)
      with_parts(parts_, [&](auto number) HWY_ATTR { split_panels<number()>(from, count, to, stride); });
    else if (unit_ == Multiplier::emulated_tiles)  // whose CPU may not round pairs
      split_numbers(from, count, to, stride);
    else
      to_pairs(from, count, to);
  }

  /// Scores [8][kForwardKeys] of a head over the columns of a part: k from the part's first key on.
  HWY_INLINE void score(int rows, const float* q, const float* k, int columns, float* to, const Ahead* ahead) const {
    if (unit_ == Multiplier::floats) return score_tile<kForwardKeys>(q, p_.D, k, p_.D, rows, columns, to, ahead);
    for (int c = 0; c < columns; c += kPanel) {
      const int64_t line = c / kPanel * p_.D / 2 / kStepsOfLine;
      pair_product<false>({q, p_.D / 2, 1, k + c * p_.D / 2, kPanel, to + c, kForwardKeys, p_.D / 2, ahead, line}, rows,
                          kPanel, static_cast<float>(p_.scale));
    }
  }

  /// out [8][padded E] += u v over the columns of a part; u [8][kForwardKeys] from the part's first on, v the whole
  /// tile.
  HWY_INLINE void add_values(int rows, const float* u, const float* v, Span part, float* out,
                             const Ahead* ahead) const {
    constexpr int kKeys = kForwardKeys;
    if (unit_ == Multiplier::pairs) return add_by_pairs(rows, u, v, part, out, ahead);
    const int columns = static_cast<int>(part.end - part.begin);
    const int64_t width = padded_width(p_.E);
    for (int64_t column = 0; column < width; column += kPanel) {
      const ColumnPanel panel = column_panel(p_.E, column);
      const int64_t line = column / kPanel * columns / kStepsOfLine;
      product<true>({u, kKeys, 1, v + column * kKeys + part.begin * panel.width, panel.width, out + column, width,
                     columns, ahead, line},
                    rows, panel.width);
    }
  }

 private:
  // By tiles, or by vectors of floats.
  Products(const Call& call, bool narrow) : p_(call.p) {
    if (call.unit != Multiplier::tiles && call.unit != Multiplier::emulated_tiles) return;
    unit_ = call.unit;
    if (narrow)
      storage_ = Storage::pairs;
    else
      storage_ = Storage::parts, parts_ = call.runtime.precision == Precision::high ? 2 : kParts;
  }

  template <class Tiles>
  HWY_INLINE void split_product(const TileProduct& x, const TileSums& c, const float* next) const {
    with_parts(parts_, [&](auto number) HWY_ATTR { tile_product<Tiles, number()>(x, c, next); });
  }

  // Weights are rounded on the way.
  HWY_INLINE void add_by_pairs(int rows, const float* u, const float* v, Span part, float* out,
                               const Ahead* ahead) const {
    constexpr int kPairs = kForwardKeys / 2;
    const int64_t columns = part.end - part.begin, width = padded_width(p_.E);
    HWY_ALIGN float weights[kRows * kPairs];
    for (int r = 0; r < rows; ++r) to_pairs(u + r * kForwardKeys, columns, weights + r * kPairs);
    for (int64_t column = 0; column < width; column += kPanel) {
      const ColumnPanel panel = column_panel(p_.E, column);
      const int64_t line = column / kPanel * columns / 2 / kStepsOfLine;
      pair_product<true>({weights, kPairs, 1, v + column * kPairs + part.begin / 2 * panel.width, panel.width,
                          out + column, width, columns / 2, ahead, line},
                         rows, panel.width, 1);
    }
  }

  const Problem& p_;
  Multiplier unit_ = Multiplier::floats;
  Storage storage_ = Storage::floats;
  int parts_ = 1;
};

/// Tiles are a thread's own while it lives.
class ProductsOfThread {
 public:
  explicit ProductsOfThread(const Products& products) : products_(products) { products_.begin(); }
  ~ProductsOfThread() { products_.end(); }
  ProductsOfThread(const ProductsOfThread&) = delete;
  ProductsOfThread& operator=(const ProductsOfThread&) = delete;

 private:
  const Products& products_;
};

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
