// The skeleton of every mixed case, forward: a block of queries keeps the scores of all heads of a unit over all the
// keys it sees (the row buffer), because a mix after the softmax needs every head's normaliser first.
//
// Pass 1, tile by tile: scores, pre mix, mask, e = exp(L - max of the tile's row). Then the normalisers; pass 2: post
// mix of e times one factor a row and tile, and its product with the values. One exponential an element, no
// recomputation. Products are made head by head for a group of sub-blocks (group.h), all else sub-block by sub-block.
#if defined(MOTET_CPU_ROW_FORWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_ROW_FORWARD_INL_H
#undef MOTET_CPU_ROW_FORWARD_INL_H
#else
#define MOTET_CPU_ROW_FORWARD_INL_H
#endif

#include "motet/attention/cpu/packed-inl.h"
#include "motet/attention/cpu/tile_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// What a forward run makes: outputs and lse, lse alone, or outputs under a given lse (no row buffer in these two).
enum class Form : uint8_t { attend, lse, given_lse };

/// Writes -inf over what the rows of a sub-block do not see of the part [begin, end) of the tile at s0.
template <int kKeys>
HWY_NOINLINE void hide_unseen(const Call& call, int64_t b, const SubBlock& sub, int64_t s0, Span part, int heads,
                              float* tile) {
  Mask mask;
  const int columns = static_cast<int>(part.end - part.begin);
  const int64_t first = s0 + part.begin;
  for (int r = 0; r < kRows; ++r) {
    mask.begin[r] = static_cast<int>(std::clamp<int64_t>(sub.row[r].begin - first, 0, columns));
    mask.end[r] = static_cast<int>(std::clamp<int64_t>(sub.row[r].end - first, 0, columns));
    if (sub.row[r].empty()) mask.begin[r] = mask.end[r] = 0;
  }
  if (call.sight.holes(b)) {
    mask.key_document = call.sight.documents(b) + first;
    for (int r = 0; r < kRows; ++r) {
      const int64_t t = sub.t0 + std::min(r, sub.count - 1);
      mask.row_document[r] = sub.row[r].empty() ? 0 : call.sight.document(b, t);
    }
  }
  hide<kKeys>(tile, heads, sub.rows, columns, mask, -INFINITY);
}

/// True when every row sees all of the part.
HWY_INLINE bool sees_all(const Call& call, int64_t b, const SubBlock& sub, int64_t s0, Span part) {
  return sub.common.begin <= s0 + part.begin && s0 + part.end <= sub.common.end && !call.sight.holes(b);
}

/// The lse of row x as what exp2_rows subtracts; rows that see nothing (and padding) give 2^-inf = 0.
HWY_INLINE void set_subtracted(const Subtracted& to, int64_t x, float lse) {
  const bool seen = lse != -INFINITY;
  to.high[x] = seen ? lse * kLog2E : INFINITY;
  to.low[x] = seen && std::isfinite(lse) ? static_cast<float>(lse * 1.4426950408889634074 - to.high[x]) : 0.f;
}

/// lse from a maximum in powers of 2 and the sum beside it, with one rounding.
HWY_INLINE float lse_of(float top, float total) {
  return total == 0 ? -INFINITY
                    : static_cast<float>((top + std::log2(static_cast<double>(total))) * 0.69314718055994530942);
}

/// Row maxima and sums of one tile.
struct TileStats {
  float *maxima, *sums;
};

/// Of lanes [x, x + kLanes) of the stats of all tiles of a row: turns the maxima into the factors 2^(m - top) / total
/// that the second pass multiplies by, and gives lse.
HWY_INLINE void finish_lanes(const std::vector<TileStats>& tiles, int64_t x, float* lse) {
  Vec top = set(kNothing), total = zero();
  for (const TileStats& tile : tiles) top = hn::Max(top, load(tile.maxima + x));
  for (const TileStats& tile : tiles) {
    const Vec factor = exp2(hn::Sub(load(tile.maxima + x), top));
    store(tile.maxima + x, factor);
    total = fma(factor, load(tile.sums + x), total);
  }
  const Vec scale = hn::IfThenElse(hn::Eq(total, zero()), zero(), hn::Div(set(1), total));
  for (const TileStats& tile : tiles) store(tile.maxima + x, hn::Mul(scale, load(tile.maxima + x)));
  float m[kLanes], l[kLanes];
  store(m, top), store(l, total);
  for (int i = 0; i < kLanes; ++i) lse[i] = lse_of(m[i], l[i]);
}

class RowForward {
 public:
  RowForward(const Call& call, const Mixes& mixes, const PackedKeys<kForwardKeys>& keys, Form form,
             const Products& products)
      : call_(call),
        p_(call.p),
        mixes_(mixes),
        keys_(keys),
        form_(form),
        products_(products),
        block_rows_(call.plan.forward_rows),
        group_(form == Form::attend ? group_of(products, call.plan.forward_group) : 1),
        query_parts_(products, block_rows_, p_.D, products.scale_left()),
        tile_products_(products, space_, 0) {
    const Unit& unit = call.plan.units.front();
    const int64_t subs = block_rows_ / kRows;
    heads_ = std::max({unit.scores, unit.softmax, unit.outputs});
    width_ = padded_width(p_.E);
    tile_ = heads_ * kRows * kForwardKeys;
    tiles_ = form == Form::attend ? std::min(call.tiles(kForwardKeys), widest_span() / kForwardKeys + 2) : 1;
    stats_ = round_up(unit.softmax * kRows, 16);
    q_ =
        space_.reserve(unit.scores * (products.tiles() ? query_parts_.size : subs * kRows * products.row_floats(p_.D)));
    out_ = space_.reserve(subs * unit.outputs * kRows * width_);
    buffer_ = space_.reserve(subs * tiles_ * tile_ + kForwardKeys);
    other_ = space_.reserve(mixes.pre.in_place && mixes.post.in_place ? 0 : group_ * tile_);
    maxima_ = space_.reserve(subs * std::max(tiles_, call.tiles(kForwardKeys)) * stats_);
    sums_ = space_.reserve(subs * std::max(tiles_, call.tiles(kForwardKeys)) * stats_);
    pre_rows_ = space_.reserve(subs * mixes.pre.row_band);
    post_rows_ = space_.reserve(subs * mixes.post.row_band);
    scratch_ = space_.reserve(std::max(mixes.pre.scratch, mixes.post.scratch));
    lse_ = space_.reserve(subs * stats_), lse_low_ = space_.reserve(subs * stats_);
  }
  bool allocate() { return space_.allocate(); }

  /// Queries of one block for one unit. `given` is lse [B,Ha,T] of Form::given_lse.
  void run(int64_t b, int64_t block, const Unit& unit, const Output& to, const float* given) {
    start(b, block, unit);
    if (form_ == Form::given_lse) read_lse(given);
    for (int64_t j = first_tile_; j < end_tile_; ++j)
      each_group(count(), group_, [&](const Group& group) { first_pass(group, j); });
    if (form_ != Form::given_lse) finish_softmax(to.lse);
    if (form_ == Form::lse) return;
    if (form_ == Form::attend)
      for (int64_t j = first_tile_; j < end_tile_; ++j)
        each_group(count(), group_, [&](const Group& group) { second_pass(group, j); });
    write_out(to.out);
  }

 private:
  int64_t count() const { return static_cast<int64_t>(subs_.size()); }
  // Keys that a block can see: all, or a window and the block.
  int64_t widest_span() const { return p_.window > 0 ? std::min(p_.S, p_.window + block_rows_) : p_.S; }

  float* q(int64_t s, int64_t h) const {
    if (products_.tiles()) return query_parts_.at(space_.get(q_) + h * query_parts_.size, s);
    return space_.get(q_) + (s * unit_.scores + h) * kRows * products_.row_floats(p_.D);
  }
  float* out(int64_t s, int64_t o) const { return space_.get(out_) + (s * unit_.outputs + o) * kRows * width_; }
  float* tile(int64_t s, int64_t j) const {
    const int64_t index = form_ == Form::attend ? (j - first_tile_) * count() + s : 0;
    return space_.get(buffer_) + index * tile_;
  }
  float* maxima(int64_t s, int64_t j) const {
    return space_.get(maxima_) + (s * (end_tile_ - first_tile_) + j - first_tile_) * stats_;
  }
  float* sums(int64_t s, int64_t j) const {
    return space_.get(sums_) + (s * (end_tile_ - first_tile_) + j - first_tile_) * stats_;
  }
  int64_t next_tile(int64_t j) const { return std::min(j + 1, end_tile_ - 1); }
  Span part(int64_t s, int64_t j) const { return subs_[s].part(j * kForwardKeys, kForwardKeys); }

  void start(int64_t b, int64_t block, const Unit& unit) {
    b_ = b, unit_ = unit;
    mixes_.post.first_out = static_cast<int>(unit.output0);
    const int64_t t0 = block * block_rows_;
    const Span seen = make_subs(call_.sight, b, t0, std::min(t0 + block_rows_, p_.T), subs_);
    for (int64_t s = 0; s < count(); ++s) {
      const SubBlock& sub = subs_[s];
      for (int64_t h = 0; h < unit.scores; ++h) products_.gather(b, sub, unit.score0 + h, q(s, h), query_parts_.part);
      gather_rows(mixes_.pre, b, sub.t0, sub.count, space_.get(pre_rows_) + s * mixes_.pre.row_band);
      gather_rows(mixes_.post, b, sub.t0, sub.count, space_.get(post_rows_) + s * mixes_.post.row_band);
    }
    first_tile_ = seen.begin / kForwardKeys, end_tile_ = (seen.end + kForwardKeys - 1) / kForwardKeys;
    if (form_ != Form::lse)
      std::fill_n(space_.get(out_), static_cast<int64_t>(subs_.size()) * unit.outputs * kRows * width_, 0.f);
  }

  // Where scores wait for their mix, and weights after theirs.
  float* other(int64_t s, const Group& group) const { return space_.get(other_) + (s - group.first) * tile_; }
  float* scores(int64_t s, int64_t j, const Group& group) const {
    return mixes_.pre.in_place ? tile(s, j) : other(s, group);
  }
  float* mixed(int64_t s, int64_t j, const Group& group) const {
    return mixes_.post.in_place ? tile(s, j) : other(s, group);
  }

  void first_pass(const Group& group, int64_t j) {
    if (products_.tiles())
      make_scores_by_tiles(group, j);
    else
      make_scores(group, j);
    for (int64_t s = group.first; s < group.end; ++s) make_weights(group, s, j);
    if (form_ == Form::given_lse) second_pass(group, j);
  }

  void second_pass(const Group& group, int64_t j) {
    for (int64_t s = group.first; s < group.end; ++s)
      mix_weights(group, s, j, form_ == Form::attend ? maxima(s, j) : nullptr);
    if (products_.tiles())
      add_values_by_tiles(group, j);
    else
      add_values(group, j);
  }

  void make_scores(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kForwardKeys;
    const int64_t row = products_.row_floats(p_.D);
    const auto keys = [&](int64_t tile, int64_t h) { return keys_.k(b_, tile, p_.key_of[unit_.score0 + h]); };
    for (int64_t h = 0; h < unit_.scores; ++h)
      for (int64_t s = group.first; s < group.end; ++s) {
        const Span part = this->part(s, j);
        if (part.empty()) continue;
        const int columns = static_cast<int>(part.end - part.begin);
        const int64_t next = group.next(s), next_head = group.next_head(s, h);
        const float* const k = keys_ahead(group, s, {h, unit_.scores, j, next_tile(j)}, row * kForwardKeys, keys);
        const Ahead ahead(scores(next, j, group) + next_head * kTile, q(next, next_head), tile(s, j) + (h + 1) * kTile,
                          k, k);
        products_.score(subs_[s].rows, q(s, h), keys(j, h) + part.begin * row, columns,
                        scores(s, j, group) + part.begin + h * kTile, &ahead);
      }
  }

  // The columns of a tile that some of `subs` sub-blocks from `first` on see.
  Span seen_together(int64_t first, int subs, int64_t j) const {
    Span all;
    for (int i = 0; i < subs; ++i) all = joined(all, part(first + i, j));
    return all;
  }

  void make_scores_by_tiles(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kForwardKeys;
    for (int64_t h = 0; h < unit_.scores; ++h)
      each_together(group.first, group.end, kSubsTogether, [&](int64_t first, int subs) {
        const Span seen = seen_together(first, subs, j);
        if (seen.empty()) return;
        const auto keys = [&](int64_t head) {
          return keys_.k(b_, j, p_.key_of[unit_.score0 + head]) + seen.begin * products_.row_floats(p_.D);
        };
        const auto to = [&](int i) {
          return part(first + i, j).empty() ? nullptr : scores(first + i, j, group) + seen.begin + h * kTile;
        };
        const bool last = first + subs == group.end;
        tile_products_.scores<kForwardKeys>(query_parts_.rows(q(0, h), first, subs), keys(h), seen.end - seen.begin, to,
                                            keys(last ? (h + 1) % unit_.scores : h));
      });
  }

  // e = exp(L - max of the tile's row), or the weights under a given lse.
  void make_weights(const Group& group, int64_t s, int64_t j) {
    constexpr int kKeys = kForwardKeys;
    const SubBlock& sub = subs_[s];
    const Span part = this->part(s, j);
    if (part.empty()) return;
    const int columns = static_cast<int>(part.end - part.begin);
    float* const e = tile(s, j) + part.begin;
    float* const scores = this->scores(s, j, group) + part.begin;
    const int heads = static_cast<int>(unit_.softmax);
    if (!mixes_.pre.passes())
      mixes_.pre.apply_wide(mixes_.pre, {scores, e, nullptr, space_.get(pre_rows_) + s * mixes_.pre.row_band,
                                         keys_.pre(b_, j) + part.begin, space_.get(scratch_), sub.rows, columns});
    if (!sees_all(call_, b_, sub, j * kKeys, part)) hide_unseen<kKeys>(call_, b_, sub, j * kKeys, part, heads, e);
    if (form_ != Form::given_lse) return softmax_rows<kKeys>(e, heads, columns, maxima(s, j), sums(s, j));
    exp2_rows<kKeys>(e, heads, sub.rows, columns, subtracted(s), nullptr);
  }

  void finish_softmax(float* lse) {
    for (int64_t s = 0; s < count(); ++s) {
      tile_stats_.clear();
      for (int64_t j = first_tile_; j < end_tile_; ++j)
        if (!part(s, j).empty()) tile_stats_.push_back({maxima(s, j), sums(s, j)});
      for (int64_t x = 0; x < stats_; x += kLanes) {
        float total[kLanes];
        finish_lanes(tile_stats_, x, total);
        for (int64_t i = 0; lse && i < kLanes; ++i) {
          const int64_t head = (x + i) / kRows, r = (x + i) % kRows;
          if (head < unit_.softmax && r < subs_[s].count)
            lse[(b_ * p_.softmax_heads + unit_.softmax0 + head) * p_.T + subs_[s].t0 + r] = total[i];
        }
      }
    }
  }

  void read_lse(const float* lse) {
    for (int64_t s = 0; s < count(); ++s)
      for (int64_t x = 0; x < stats_; ++x) {
        const int64_t head = x / kRows, r = x % kRows;
        const bool real = head < unit_.softmax && r < subs_[s].count;
        set_subtracted(
            subtracted(s), x,
            real ? lse[(b_ * p_.softmax_heads + unit_.softmax0 + head) * p_.T + subs_[s].t0 + r] : -INFINITY);
      }
  }

  Subtracted subtracted(int64_t s) const {
    const int64_t at = s * stats_;
    return {space_.get(lse_) + at, space_.get(lse_low_) + at};
  }

  void mix_weights(const Group& group, int64_t s, int64_t j, const float* factor) {
    const SubBlock& sub = subs_[s];
    const Span part = this->part(s, j);
    if (part.empty()) return;
    const int columns = static_cast<int>(part.end - part.begin);
    float* const e = tile(s, j) + part.begin;
    if (!mixes_.post.passes()) {
      mixes_.post.apply_wide(
          mixes_.post, {e, mixed(s, j, group) + part.begin, factor, space_.get(post_rows_) + s * mixes_.post.row_band,
                        keys_.post(b_, j) + part.begin, space_.get(scratch_), sub.rows, columns});
    } else if (factor) {
      scale_rows(e, factor, sub.rows, columns);
    }
  }

  void add_values(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kForwardKeys;
    const int64_t piece = products_.panel_floats(width_ * kForwardKeys);
    const auto values = [&](int64_t tile, int64_t o) {
      return keys_.v_columns(b_, tile, p_.value_of[unit_.output0 + o]);
    };
    for (int64_t o = 0; o < unit_.outputs; ++o)
      for (int64_t s = group.first; s < group.end; ++s) {
        const Span part = this->part(s, j);
        if (part.empty()) continue;
        const float* const v = keys_ahead(group, s, {o, unit_.outputs, j, next_tile(j)}, piece, values);
        // Of the row buffer, what the next group reads.
        const float* const next = form_ == Form::attend ? tile(s, j) + group_ * tile_ + o * kTile : v;
        const Ahead ahead(out(group.next(s), group.next_head(s, o)), next, v);
        products_.add_values(subs_[s].rows, mixed(s, j, group) + part.begin + o * kTile, values(j, o), part, out(s, o),
                             &ahead);
      }
  }

  void add_values_by_tiles(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kForwardKeys;
    const auto values = [&](int64_t o) { return keys_.v_columns(b_, j, p_.value_of[unit_.output0 + o]); };
    for (int64_t o = 0; o < unit_.outputs; ++o)
      each_together(group.first, group.end, kSubsTogether, [&](int64_t first, int subs) {
        const Span seen = seen_together(first, subs, j);
        if (seen.empty()) return;
        const TileRows u = tile_products_.weights<kForwardKeys>(
            subs, [&](int i) { return Weights{mixed(first + i, j, group) + o * kTile, part(first + i, j)}; });
        const auto to = [&](int i) { return part(first + i, j).empty() ? nullptr : out(first + i, o); };
        const bool last = first + subs == group.end;
        tile_products_.values<kForwardKeys>(u, values(o), seen, p_.E, to, values(last ? (o + 1) % unit_.outputs : o));
      });
  }

  void scale_rows(float* e, const float* factor, int rows, int columns) const {
    for (int64_t h = 0; h < unit_.softmax; ++h)
      for (int r = 0; r < rows; ++r) {
        const Vec f = set(factor[h * kRows + r]);
        float* x = e + (h * kRows + r) * kForwardKeys;
        for (int c = 0; c < columns; c += kLanes) store(x + c, hn::Mul(f, load(x + c)));
      }
  }

  void write_out(void* out) {
    for (int64_t s = 0; s < count(); ++s)
      for (int r = 0; r < subs_[s].count; ++r)
        for (int64_t o = 0; o < unit_.outputs; ++o)
          narrow_row(this->out(s, o) + r * width_, p_.E, out, p_.q.type,
                     ((b_ * p_.T + subs_[s].t0 + r) * p_.output_heads + unit_.output0 + o) * p_.E);
  }

  const Call& call_;
  const Problem& p_;
  Mixes mixes_;
  const PackedKeys<kForwardKeys>& keys_;
  const Form form_;
  const Products& products_;
  const int64_t block_rows_, group_;  // without a row buffer all sub-blocks share one tile, so each is a group
  int64_t heads_ = 0, width_ = 0, tile_ = 0, tiles_ = 0, stats_ = 0;
  const PartsOfBlock query_parts_;
  Workspace space_;
  TileProducts tile_products_;
  size_t q_, out_, buffer_, other_, maxima_, sums_, pre_rows_, post_rows_, scratch_, lse_, lse_low_;
  int64_t b_ = 0, first_tile_ = 0, end_tile_ = 0;
  Unit unit_{};
  std::vector<SubBlock> subs_;
  std::vector<TileStats> tile_stats_;
};

/// All blocks of a call, the longest first.
HWY_INLINE Status run_row_forward(const Call& call, Form form, const Output& to, const float* given) {
  const Mixes mixes(call);
  const Products products(call);
  PackedKeys<kForwardKeys> keys(call, mixes, false, products);
  if (!keys.allocate()) return Status::out_of_memory;
  keys.pack();
  const int64_t blocks = call.blocks(call.plan.forward_rows), units = static_cast<int64_t>(call.plan.units.size());
  Tasks tasks(call.p.B * units * blocks);
  std::atomic<bool> failed = false;
  const int64_t workers = std::min<int64_t>(call.runtime.threads.count, call.p.B * units * blocks);
  call.runtime.threads.run(workers, [&](int64_t) {
    const ProductsOfThread own(products);
    RowForward worker(call, mixes, keys, form, products);
    if (!worker.allocate()) {
      failed = true;
      return;
    }
    for (int64_t task; (task = tasks.next()) >= 0;) {
      const int64_t block = blocks - 1 - task % blocks, unit = task / blocks % units, b = task / blocks / units;
      worker.run(b, block, call.plan.units[unit], to, given);
    }
  });
  return failed ? Status::out_of_memory : Status::ok;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
