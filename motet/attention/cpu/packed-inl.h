// Keys and values of a call in packed tiles, and the accumulators of their gradients in the same shape.
#if defined(MOTET_CPU_PACKED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_PACKED_INL_H
#undef MOTET_CPU_PACKED_INL_H
#else
#define MOTET_CPU_PACKED_INL_H
#endif

#include "motet/attention/cpu/bands-inl.h"
#include "motet/attention/cpu/products-inl.h"
#include "motet/attention/cpu/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// A packed tensor: one piece for each sequence, tile and stored head.
struct Pieces {
  size_t handle = 0;
  float* data = nullptr;
  int64_t size = 0, batch = 0, tile = 0, head = 0;  // floats of a piece; strides

  /// Tile by tile, or head by head where each head is worked on alone.
  Pieces() = default;
  Pieces(Workspace& space, int64_t B, int64_t tiles, int64_t heads, int64_t piece, bool by_head)
      : size(piece),
        batch(tiles * heads * piece),
        tile(by_head ? piece : heads * piece),
        head(by_head ? tiles * piece : piece) {
    handle = space.reserve(B * batch);
  }
  float* at(int64_t b, int64_t j, int64_t g) const { return data + b * batch + j * tile + g * head; }
};

/// The mixes of the call; they belong to units, which are all of one shape.
struct Mixes {
  Mix pre, post;
  explicit Mixes(const Call& call) {
    const Unit& unit = call.plan.units.front();
    pre = make_mix(call.plan.pre, call.p.pre, call.p.pairs, static_cast<int>(unit.scores),
                   static_cast<int>(unit.softmax));
    post = make_mix(call.plan.post, call.p.post, call.p.pairs, static_cast<int>(unit.softmax),
                    static_cast<int>(unit.outputs));
  }
};

template <int kKeys>
class PackedKeys {
 public:
  /// Forward needs k transposed and v in columns, stored as asked for; backward k in columns too,
  /// and v transposed.
  PackedKeys(const Call& call, const Mixes& mixes, bool backward, const Products& products)
      : call_(call), mixes_(mixes), backward_(backward), products_(products), storage_(products.storage()) {
    const Problem& p = call.p;
    const int64_t tiles = call.tiles(kKeys);
    const bool by_head = call.plan.clusters.size() > 1;
    k_ = Pieces(space_, p.B, tiles, p.key_heads, products.row_floats(p.D) * kKeys, by_head);
    if (backward) {
      v_turned_ = Pieces(space_, p.B, tiles, p.value_heads, products.row_floats(p.E) * kKeys, by_head);
      k_columns_ = Pieces(space_, p.B, tiles, p.key_heads, products.panel_floats(padded_width(p.D) * kKeys), by_head);
    } else {
      v_columns_ = Pieces(space_, p.B, tiles, p.value_heads, products.panel_floats(padded_width(p.E) * kKeys), by_head);
    }
    pre_ = Pieces(space_, p.B, tiles, 1, mixes.pre.key_numbers * kKeys, false);
    post_ = Pieces(space_, p.B, tiles, 1, mixes.post.key_numbers * kKeys, false);
  }

  bool allocate() {
    if (!space_.allocate()) return false;
    for (Pieces* x : {&k_, &v_columns_, &v_turned_, &k_columns_, &pre_, &post_})
      if (x->size) x->data = space_.get(x->handle);
    return true;
  }

  /// Packs everything, tile by tile, on all threads.
  void pack() {
    const int64_t tiles = call_.tiles(kKeys);
    const int64_t grain = 4;  // tiles a task
    const int64_t groups = (tiles + grain - 1) / grain;
    call_.runtime.threads.run(call_.p.B * groups, [&](int64_t task) {
      const int64_t b = task / groups, first = task % groups * grain;
      for (int64_t j = first; j < std::min(first + grain, tiles); ++j) pack_tile(b, j);
    });
  }

  const float* k(int64_t b, int64_t j, int64_t g) const { return k_.at(b, j, g); }
  const float* k_columns(int64_t b, int64_t j, int64_t g) const { return k_columns_.at(b, j, g); }
  const float* v_columns(int64_t b, int64_t j, int64_t g) const { return v_columns_.at(b, j, g); }
  const float* v_turned(int64_t b, int64_t j, int64_t g) const { return v_turned_.at(b, j, g); }
  const float* pre(int64_t b, int64_t j) const { return pre_.size ? pre_.at(b, j, 0) : nullptr; }
  const float* post(int64_t b, int64_t j) const { return post_.size ? post_.at(b, j, 0) : nullptr; }

 private:
  // The readable keys of the tile, absolute.
  Span readable(int64_t b, int64_t j) const {
    const Span all = call_.sight.readable(b);
    const Span in{std::max(all.begin, j * kKeys), std::min({all.end, (j + 1) * kKeys, call_.p.S})};
    return in.empty() ? Span{j * kKeys, j * kKeys} : in;
  }

  void turn(const Operand& x, int64_t b, int64_t j, int64_t head, int64_t width, float* out) const {
    const Span keys = readable(b, j);
    for (int64_t panel = 0; panel < kKeys; panel += kPanel) {
      const int64_t s0 = j * kKeys + panel;
      const Span in{std::clamp(keys.begin, s0, s0 + kPanel), std::clamp(keys.end, s0, s0 + kPanel)};
      if (storage_ == Storage::pairs) {
        pack_pairs_transposed(bits(x, b, head, in), x.row_stride, static_cast<int>(in.begin - s0),
                              static_cast<int>(in.end - s0), width, out + panel * products_.row_floats(width));
        const int64_t have = width / 2 * kPanel;  // what is beyond the width is 0
        std::fill_n(out + panel * products_.row_floats(width) + have, products_.row_floats(width) * kPanel - have, 0.f);
        continue;
      }
      const Rows rows = rows_of(x, b, head, in, width, staging());
      const int first = static_cast<int>(in.begin - s0), last = static_cast<int>(in.end - s0);
      if (storage_ == Storage::parts)
        with_parts(products_.parts(), [&](auto number) HWY_ATTR {
          pack_parts_transposed<number()>(rows, first, last, width, products_.pairs(width), parts(),
                                          out + panel * products_.row_floats(width));
        });
      else
        pack_transposed(rows, first, last, width, out + panel * width, InOrder{kPanel});
    }
  }

  void columns(const Operand& x, int64_t b, int64_t j, int64_t head, int64_t width, float* out) const {
    const Span keys = readable(b, j);
    if (storage_ == Storage::pairs) {
      pack_pairs_columns<kKeys>(bits(x, b, head, keys), x.row_stride, static_cast<int>(keys.begin - j * kKeys),
                                static_cast<int>(keys.end - j * kKeys), width, out);
      return;
    }
    const Rows rows = rows_of(x, b, head, keys, width, staging());
    const int first = static_cast<int>(keys.begin - j * kKeys), last = static_cast<int>(keys.end - j * kKeys);
    if (storage_ == Storage::parts)
      with_parts(products_.parts(),
                 [&](auto number) HWY_ATTR { pack_parts_columns<kKeys, number()>(rows, first, last, width, out); });
    else
      pack_columns<kKeys>(rows, first, last, width, out);
  }

  void pack_tile(int64_t b, int64_t j) const {
    const Problem& p = call_.p;
    for (int64_t g = 0; g < p.key_heads; ++g) {
      turn(p.k, b, j, g, p.D, k_.at(b, j, g));
      if (backward_) columns(p.k, b, j, g, p.D, k_columns_.at(b, j, g));
    }
    for (int64_t g = 0; g < p.value_heads; ++g) {
      if (backward_)
        turn(p.v, b, j, g, p.E, v_turned_.at(b, j, g));
      else
        columns(p.v, b, j, g, p.E, v_columns_.at(b, j, g));
    }
    if (pre_.size) gather_keys<kKeys>(mixes_.pre, b, j * kKeys, readable(b, j), pre_.at(b, j, 0));
    if (post_.size) gather_keys<kKeys>(mixes_.post, b, j * kKeys, readable(b, j), post_.at(b, j, 0));
  }

  static const uint16_t* bits(const Operand& x, int64_t b, int64_t head, Span keys) {
    return static_cast<const uint16_t*>(x.data) + b * x.batch_stride + head * x.head_stride + keys.begin * x.row_stride;
  }

  // 16-bit rows of one tile as float32.
  float* staging() const {
    static thread_local std::vector<float> rows;
    rows.resize(static_cast<size_t>(kKeys * std::max(call_.p.D, call_.p.E)));
    return rows.data();
  }

  // The parts of 32 rows of keys.
  float* parts() const {
    static thread_local std::vector<float> rows;
    rows.resize(static_cast<size_t>(kPanel * products_.row_floats(std::max(call_.p.D, call_.p.E))));
    return rows.data();
  }

  const Call& call_;
  const Mixes& mixes_;
  bool backward_;
  const Products& products_;
  const Storage storage_;
  Workspace space_;
  Pieces k_, v_columns_, v_turned_, k_columns_, pre_, post_;
};

/// Sums of gradients of one stored tensor [B,S,heads,width], in column panels of tiles or, turned, in columns. Where
/// these are as large as the gradient itself they lie in its memory, so that they cost nothing, and are put in order at
/// the end.
class GradientTiles {
 public:
  struct Shape {
    int64_t B, S, heads, width;
  };
  GradientTiles(Workspace& space, float* gradient, const Shape& shape, bool turned)
      : gradient_(gradient),
        S_(shape.S),
        heads_(shape.heads),
        width_(shape.width),
        in_memory_(gradient && padded_width(width_) == width_),
        turned_(turned) {
    tiles_ = (S_ + kBackwardKeys - 1) / kBackwardKeys;
    tile_ = heads_ * padded_width(width_) * kBackwardKeys;
    const int64_t own = in_memory_ ? (S_ % kBackwardKeys ? 1 : 0) : tiles_;  // the last, short tile never fits
    first_own_ = tiles_ - own;
    own_per_batch_ = own * tile_;
    handle_ = space.reserve(shape.B * own_per_batch_);
  }
  void allocated(const Workspace& space) { own_ = space.get(handle_); }

  float* at(int64_t b, int64_t j, int64_t g) const { return tile(b, j) + g * padded_width(width_) * kBackwardKeys; }
  void clear(int64_t b, int64_t j) const { std::fill_n(tile(b, j), tile_, 0.f); }

  /// Puts tile j of sequence b into the gradient [B,S,heads,width], in its order.
  void finish(int64_t b, int64_t j, std::vector<float>& scratch) const {
    if (!gradient_) return;
    scratch.assign(tile(b, j), tile(b, j) + tile_);
    const int64_t s0 = j * kBackwardKeys;
    const int count = static_cast<int>(std::min<int64_t>(kBackwardKeys, S_ - s0));
    for (int64_t g = 0; g < heads_; ++g) {
      const float* const from = scratch.data() + g * padded_width(width_) * kBackwardKeys;
      float* const to = gradient_ + ((b * S_ + s0) * heads_ + g) * width_;
      if (turned_)
        unpack_transposed(from, InOrder{kBackwardKeys}, count, width_, to, heads_ * width_);
      else
        unpack_columns<kBackwardKeys>(from, count, width_, to, heads_ * width_);
    }
  }

 private:
  float* tile(int64_t b, int64_t j) const {
    return j >= first_own_ ? own_ + b * own_per_batch_ + (j - first_own_) * tile_
                           : gradient_ + (b * S_ + j * kBackwardKeys) * heads_ * width_;
  }
  float* gradient_;
  int64_t S_, heads_, width_;
  bool in_memory_, turned_;
  int64_t tiles_ = 0, tile_ = 0, first_own_ = 0, own_per_batch_ = 0;
  size_t handle_ = 0;
  float* own_ = nullptr;
};

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
