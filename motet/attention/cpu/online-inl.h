// The skeleton of plain attention, one head at a time: online softmax forward, one pass over the keys backward.
#if defined(MOTET_CPU_ONLINE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_ONLINE_INL_H
#undef MOTET_CPU_ONLINE_INL_H
#else
#define MOTET_CPU_ONLINE_INL_H
#endif

#include "motet/attention/cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

constexpr int kOnlineRows = 16;       // two sub-blocks share a tile, so that 16 lanes reduce 16 rows
constexpr float kRescaleStep = 20.f;  // sums are rescaled only when a maximum grows by more than 2^20

class OnlineForward {
 public:
  OnlineForward(const Call& call, const PackedKeys<kForwardKeys>& keys, const Products& products)
      : call_(call),
        p_(call.p),
        keys_(keys),
        products_(products),
        block_rows_(round_up(call.plan.forward_rows, kOnlineRows)),
        together_(products.tiles() ? kSubsTogether : kOnlineRows / kRows),
        width_(padded_width(p_.E)),
        q_parts_(products, block_rows_, p_.D, products.scale_left()),
        tile_products_(products, space_, 0) {
    q_ = space_.reserve(products.tiles() ? q_parts_.size : block_rows_ * products.row_floats(p_.D));
    out_ = space_.reserve(block_rows_ * width_);
    scores_ = space_.reserve((together_ + 1) * kRows * kForwardKeys);
    maxima_ = space_.reserve(block_rows_), sums_ = space_.reserve(block_rows_);
  }
  bool allocate() { return space_.allocate(); }

  void run(int64_t b, int64_t block, const Unit& unit, const Output& to) {
    const int64_t t0 = block * block_rows_;
    b_ = b;
    const Span seen = make_subs(call_.sight, b, t0, std::min(t0 + block_rows_, p_.T), subs_);
    for (const SubBlock& sub : subs_) products_.gather(b, sub, unit.score0, query(sub.t0 - t0), q_parts_.part);
    std::fill_n(space_.get(out_), count() * kRows * width_, 0.f);
    // Rows beyond a sub-block's real ones hold anything: nothing is larger than their maxima, and rescales the others.
    std::fill_n(space_.get(maxima_), block_rows_, INFINITY);
    for (int64_t s = 0; s < count(); ++s) std::fill_n(space_.get(maxima_) + s * kRows, subs_[s].rows, kNothing);
    std::fill_n(space_.get(sums_), block_rows_, 0.f);
    for (int64_t j = seen.begin / kForwardKeys; j * kForwardKeys < seen.end; ++j)
      for (int64_t s = 0; s < count(); s += together_) add_tile(s, j, unit);
    write_out(unit, to);
  }

 private:
  int64_t count() const { return static_cast<int64_t>(subs_.size()); }
  int64_t next_tile(int64_t j) const { return std::min(j + 1, call_.tiles(kForwardKeys) - 1); }

  float* query(int64_t row) const {
    return space_.get(q_) + row * (products_.tiles() ? q_parts_.row : products_.row_floats(p_.D));
  }

  // The sub-blocks that share a tile, from s on, and tile j.
  void add_tile(int64_t s, int64_t j, const Unit& unit) {
    const int subs = static_cast<int>(std::min<int64_t>(together_, count() - s));
    Span part;
    for (int i = 0; i < subs; ++i) part = joined(part, subs_[s + i].part(j * kForwardKeys, kForwardKeys));
    if (part.empty()) return;
    const int columns = static_cast<int>(part.end - part.begin);
    if (HWY_UNLIKELY(products_.tiles()))
      make_scores_by_tiles(s, subs, j, part, unit);
    else
      make_scores(s, subs, j, part, unit);
    for (int i = 0; i < subs; ++i)
      if (!sees_all(call_, b_, subs_[s + i], j * kForwardKeys, part))
        hide_unseen<kForwardKeys>(call_, b_, subs_[s + i], j * kForwardKeys, part, 1, tile(i));
    for (int r = 0; r < subs * kRows; r += kLanes) softmax(s * kRows, r, subs * kRows, columns);
    if (HWY_UNLIKELY(products_.tiles()))
      add_values_by_tiles(s, subs, j, part, unit);
    else
      add_values(s, subs, j, part, unit);
  }

  float* tile(int i) const { return space_.get(scores_) + i * kRows * kForwardKeys; }
  float* out(int64_t s) const { return space_.get(out_) + s * kRows * width_; }
  bool fetches() const { return products_.storage() == Storage::floats; }  // tiles of half the size do without

  void make_scores(int64_t s, int subs, int64_t j, Span part, const Unit& unit) {
    const int64_t row = products_.row_floats(p_.D), head = p_.key_of[unit.score0];
    const float* const k = keys_.k(b_, j, head) + part.begin * row;
    for (int i = 0; i < subs; ++i) {
      const float* const next = share(keys_.k(b_, next_tile(j), head), row * kForwardKeys, s + i, count());
      const Ahead ahead(tile(i + 1), next, next);
      products_.score(subs_[s + i].rows, space_.get(q_) + (s + i) * kRows * row, k,
                      static_cast<int>(part.end - part.begin), tile(i), fetches() ? &ahead : nullptr);
    }
  }

  void make_scores_by_tiles(int64_t s, int subs, int64_t j, Span part, const Unit& unit) {
    const float* const k = keys_.k(b_, j, p_.key_of[unit.score0]) + part.begin * products_.row_floats(p_.D);
    tile_products_.scores<kForwardKeys>(
        q_parts_.rows(space_.get(q_), s, subs), k, part.end - part.begin, [&](int i) { return tile(i); },
        keys_.v_columns(b_, j, p_.value_of[unit.output0]));
  }

  void add_values(int64_t s, int subs, int64_t j, Span part, const Unit& unit) {
    const int64_t head = p_.value_of[unit.output0];
    for (int i = 0; i < subs; ++i) {
      const float* const next =
          share(keys_.v_columns(b_, next_tile(j), head), products_.panel_floats(width_ * kForwardKeys), s + i, count());
      const Ahead ahead(out(s + i + 1), next, next);
      products_.add_values(subs_[s + i].rows, tile(i), keys_.v_columns(b_, j, head), part, out(s + i),
                           fetches() ? &ahead : nullptr);
    }
  }

  // Weights lie from the part's first column on.
  void add_values_by_tiles(int64_t s, int subs, int64_t j, Span part, const Unit& unit) {
    const TileRows u =
        tile_products_.weights<kForwardKeys>(subs, [&](int i) { return Weights{tile(i) - part.begin, part}; });
    const int64_t next = s + subs < count() ? j : next_tile(j);
    tile_products_.values<kForwardKeys>(
        u, keys_.v_columns(b_, j, p_.value_of[unit.output0]), part, p_.E, [&](int i) { return out(s + i); },
        keys_.k(b_, next, p_.key_of[unit.score0]));
  }

  // Rows [r, r + kLanes) of the tile whose first row is `row0` of the block; of `rows` real ones.
  HWY_INLINE void softmax(int64_t row0, int r, int rows, int columns) {
    float* const e = space_.get(scores_) + r * kForwardKeys;
    float* const m = space_.get(maxima_) + row0 + r;
    float* const l = space_.get(sums_) + row0 + r;
    const int last = std::min(kLanes, rows - r);  // 8 of 16 lanes where the block ends
    Vec v[kLanes];
    MOTET_UNROLL(16) for (int i = 0; i < kLanes; ++i) {
      const float* x = e + (i % last) * kForwardKeys;
      Vec top = load(x);
      for (int c = kLanes; c < columns; c += kLanes) top = hn::Max(top, load(x + c));
      v[i] = top;
    }
    const Vec top = hn::Mul(reduce_each(v, MaxOf()), set(kLog2E)), old = load(m);
    if (!hn::AllFalse(Floats(), hn::Gt(top, hn::Add(old, set(kRescaleStep)))))
      rescale(row0 + r, last, hn::Max(old, top));
    for (int i = 0; i < last; ++i) {
      const Vec row_top = set(m[i]);
      float* x = e + i * kForwardKeys;
      Vec sum = zero();
      for (int c = 0; c < columns; c += kLanes) {
        const Vec y = exp2(from_top(load(x + c), row_top));
        store(x + c, y);
        sum = hn::Add(sum, y);
      }
      v[i] = sum;
    }
    MOTET_UNROLL(16) for (int i = 0; i < kLanes; ++i) if (i >= last) v[i] = zero();
    store(l, hn::Add(load(l), reduce_each(v, SumOf())));
  }

  HWY_NOINLINE void rescale(int64_t row, int rows, Vec top) {
    float* const m = space_.get(maxima_) + row;
    float* const l = space_.get(sums_) + row;
    const Vec factor = exp2(hn::Sub(load(m), top));
    HWY_ALIGN float f[kLanes];
    store(f, factor);
    store(m, top);
    store(l, hn::Mul(load(l), factor));
    for (int r = 0; r < rows; ++r) {
      float* o = space_.get(out_) + (row + r) * width_;
      for (int64_t c = 0; c < width_; c += kLanes) store(o + c, hn::Mul(load(o + c), set(f[r])));
    }
  }

  void write_out(const Unit& unit, const Output& to) {
    for (int64_t s = 0; s < count(); ++s)
      for (int r = 0; r < subs_[s].count; ++r) {
        const int64_t row = s * kRows + r, t = subs_[s].t0 + r;
        const float total = space_.get(sums_)[row];
        float* const o = space_.get(out_) + row * width_;
        const int64_t at = ((b_ * p_.T + t) * p_.output_heads + unit.output0) * p_.E;
        const bool plain = p_.q.type == Type::float32;
        scale_row(o, total == 0 ? 0.f : 1 / total, p_.E, plain ? static_cast<float*>(to.out) + at : o);
        if (!plain) narrow_row(o, p_.E, to.out, p_.q.type, at);
        if (to.lse)
          to.lse[(b_ * p_.softmax_heads + unit.softmax0) * p_.T + t] = lse_of(space_.get(maxima_)[row], total);
      }
  }

  const Call& call_;
  const Problem& p_;
  const PackedKeys<kForwardKeys>& keys_;
  const Products& products_;
  const int64_t block_rows_, together_, width_;
  const PartsOfBlock q_parts_;
  Workspace space_;
  TileProducts tile_products_;
  size_t q_, out_, scores_, maxima_, sums_;
  int64_t b_ = 0;
  std::vector<SubBlock> subs_;
};

/// A worker of run_backward: P and dL of one tile at a time, because sum P dP = dout . out here.
class OnlineBackward {
 public:
  OnlineBackward(const Call& call, const Mixes&, const Products& products, const PackedKeys<kBackwardKeys>& keys,
                 BackwardShared& shared, const BlockTurns& turns, const Incoming& from, const Gradients& to)
      : call_(call),
        p_(call.p),
        products_(products),
        by_tiles_(products.tiles()),
        keys_(keys),
        shared_(shared),
        turns_(turns),
        from_(from),
        to_(to),
        block_rows_(call.plan.backward_rows),
        d_(padded_width(p_.D)),
        e_(padded_width(p_.E)),
        together_(by_tiles_ ? kSubsTogether : 1),
        query_parts_(products, block_rows_, p_.D, 1),
        dout_parts_(products, block_rows_, p_.E, 1),
        turned_keys_(products, block_rows_, p_.D, 1),
        turned_values_(products, block_rows_, p_.E, 1),
        tile_products_(products, space_, block_rows_) {
    q_ = space_.reserve(block_rows_ * d_), dq_ = space_.reserve(block_rows_ * d_);
    dout_ = space_.reserve(block_rows_ * e_);
    weights_ = space_.reserve(block_rows_ * kBackwardKeys + kRows * kBackwardKeys);
    grads_ = space_.reserve(block_rows_ * kBackwardKeys + kRows * kBackwardKeys);
    lse_ = space_.reserve(block_rows_), lse_low_ = space_.reserve(block_rows_), totals_ = space_.reserve(block_rows_);
    row_sums_ = space_.reserve(block_rows_);
    if (!by_tiles_) return;
    q_tiles_ = space_.reserve(query_parts_.size);
    dout_tiles_ = space_.reserve(dout_parts_.size);
    q_turned_ = space_.reserve(turned_keys_.size);
    dout_turned_ = space_.reserve(turned_values_.size);
  }
  bool allocate() { return space_.allocate(); }

  void run(const BackwardTask& task) {
    task_ = task;
    const Span seen = start();
    refine_lse(seen);
    for (int64_t j = seen.begin / kBackwardKeys; j * kBackwardKeys < seen.end; ++j) {
      const int64_t place = turns_.place(task.b, task.cluster, j);
      const int64_t turn = turns_.turn(task.b, task.block, j, task.unit_index, task.units);
      active_.clear();
      for (int64_t s = 0; s < count(); ++s)
        if (sees(s, j)) active_.push_back(s);
      each_product(j, [&](int64_t first, int subs) { add_tile(first, subs, j); });
      shared_.first_pass.wait(place, turn);
      add_values(shared_.dv.at(task.b, j, p_.value_of[task.unit.output0]));
      add_keys(shared_.dk.at(task.b, j, p_.key_of[task.unit.score0]));
      shared_.first_pass.finish(place, turn);
    }
    write_out();
  }

 private:
  int64_t count() const { return static_cast<int64_t>(subs_.size()); }
  int64_t next_tile(int64_t j) const { return std::min(j + 1, call_.tiles(kBackwardKeys) - 1); }

  Span start() {
    const int64_t t0 = task_.block * block_rows_;
    const Span seen = make_subs(call_.sight, task_.b, t0, std::min(t0 + block_rows_, p_.T), subs_);
    for (int64_t s = 0; s < count(); ++s) {
      const SubBlock& sub = subs_[s];
      float *const q = space_.get(q_) + s * kRows * d_, *const dout = space_.get(dout_) + s * kRows * e_;
      gather_queries(p_.q, task_.b, sub, task_.unit.score0, p_.D, d_, static_cast<float>(p_.scale), q);
      gather_queries(from_.dout, task_.b, sub, task_.unit.output0, p_.E, e_, 1, dout);
      if (HWY_UNLIKELY(by_tiles_)) {
        products_.split_rows(q, d_, p_.D, query_parts_.at(space_.get(q_tiles_), s), query_parts_.part);
        products_.split_rows(dout, e_, p_.E, dout_parts_.at(space_.get(dout_tiles_), s), dout_parts_.part);
      }
      for (int r = 0; r < kRows; ++r) gather_row(t0, sub, r);
    }
    if (HWY_UNLIKELY(by_tiles_)) {
      const auto rows = [&](size_t vectors, int64_t width) {
        return [=, this](int64_t s) { return space_.get(vectors) + s * kRows * padded_width(width); };
      };
      turn_queries(products_, turned_keys_, count(), rows(q_, p_.D), space_.get(q_turned_));
      turn_queries(products_, turned_values_, count(), rows(dout_, p_.E), space_.get(dout_turned_));
    }
    std::fill_n(space_.get(dq_), count() * kRows * d_, 0.f);
    return seen;
  }

  // lse and dout . out of a row.
  void gather_row(int64_t t0, const SubBlock& sub, int r) {
    const int64_t t = sub.t0 + std::min(r, sub.count - 1), row = sub.t0 + r - t0;
    set_subtracted(
        {space_.get(lse_), space_.get(lse_low_)}, row,
        r < sub.count ? from_.lse[(task_.b * p_.softmax_heads + task_.unit.softmax0) * p_.T + t] : -INFINITY);
    const Operand& o = from_.out;
    const float* out = static_cast<const float*>(o.data) + task_.b * o.batch_stride + t * o.row_stride +
                       task_.unit.output0 * o.head_stride;
    const float* dout = space_.get(dout_) + row * e_;
    Vec sum = zero();
    int64_t c = 0;
    for (; c + kLanes <= p_.E; c += kLanes) sum = fma(load(out + c), load(dout + c), sum);
    float rest = 0;
    for (; c < p_.E; ++c) rest += out[c] * dout[c];
    space_.get(row_sums_)[row] = hn::GetLane(hn::SumOfLanes(Floats(), sum)) + rest;
  }

  bool sees(int64_t s, int64_t j) const { return !subs_[s].part(j * kBackwardKeys, kBackwardKeys).empty(); }
  float* weights(int64_t s) const { return space_.get(weights_) + s * kRows * kBackwardKeys; }
  float* grads(int64_t s) const { return space_.get(grads_) + s * kRows * kBackwardKeys; }

  // Calls work(first, subs) for the sub-blocks whose products are made together, if some see tile j.
  template <class Work>
  HWY_INLINE void each_product(int64_t j, const Work& work) {
    each_together(0, count(), together_, [&](int64_t first, int subs) {
      for (int i = 0; i < subs; ++i)
        if (sees(first + i, j)) return work(first, subs);
    });
  }

  // Logits of sub-blocks on a tile, -inf where nothing is seen.
  void make_logits(int64_t first, int subs, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    const int64_t head = p_.key_of[task_.unit.score0];
    const float* const k = keys_.k(task_.b, j, head);
    if (HWY_UNLIKELY(by_tiles_)) {
      tile_products_.scores<kKeys>(
          query_parts_.rows(space_.get(q_tiles_), first, subs), k, kKeys, [&](int i) { return weights(first + i); },
          keys_.v_turned(task_.b, j, p_.value_of[task_.unit.output0]));
    } else {
      const float* const next = share(keys_.k(task_.b, next_tile(j), head), p_.D * kKeys, first, count());
      const Ahead ahead(weights(first + 1), next, next);
      score_tile<kKeys>(space_.get(q_) + first * kRows * d_, d_, k, p_.D, subs_[first].rows, kKeys, weights(first),
                        &ahead);
    }
    for (int64_t s = first; s < first + subs; ++s)
      if (!sees_all(call_, task_.b, subs_[s], j * kKeys, {0, kKeys}))
        hide_unseen<kKeys>(call_, task_.b, subs_[s], j * kKeys, {0, kKeys}, 1, weights(s));
  }

  // dP = dout V^T.
  void make_grads(int64_t first, int subs, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    const int64_t head = p_.value_of[task_.unit.output0];
    const float* const v = keys_.v_turned(task_.b, j, head);
    if (HWY_UNLIKELY(by_tiles_))
      return tile_products_.scores<kKeys>(
          dout_parts_.rows(space_.get(dout_tiles_), first, subs), v, kKeys, [&](int i) { return grads(first + i); },
          keys_.k_columns(task_.b, j, p_.key_of[task_.unit.score0]));
    const float* const next = share(keys_.v_turned(task_.b, next_tile(j), head), p_.E * kKeys, first, count());
    const float* const dv = share(shared_.dv.at(task_.b, next_tile(j), head), p_.E * kKeys, first, count());
    const Ahead ahead(grads(first + 1), next, dv);
    score_tile<kKeys>(space_.get(dout_) + first * kRows * e_, e_, v, p_.E, subs_[first].rows, kKeys, grads(first),
                      &ahead);
  }

  // As RowBackward's.
  void refine_lse(Span seen) {
    if (!needs_refining(space_.get(lse_), count() * kRows)) return;
    std::fill_n(space_.get(totals_), count() * kRows, 0.f);
    for (int64_t j = seen.begin / kBackwardKeys; j * kBackwardKeys < seen.end; ++j)
      each_product(j, [&](int64_t first, int subs) {
        make_logits(first, subs, j);
        for (int64_t s = first; s < first + subs; ++s)
          if (sees(s, j))
            exp2_rows<kBackwardKeys>(weights(s), 1, subs_[s].rows, kBackwardKeys,
                                     {space_.get(lse_) + s * kRows, space_.get(lse_low_) + s * kRows},
                                     space_.get(totals_) + s * kRows);
      });
    refine(space_.get(totals_), space_.get(lse_low_), count() * kRows);
  }

  // P of a sub-block, and dS in place of dP.
  void weigh(int64_t s) {
    constexpr int kKeys = kBackwardKeys;
    float *const p = weights(s), *const g = grads(s);
    for (int r = 0; r < subs_[s].rows; ++r) {
      const int64_t row = s * kRows + r;
      const Vec high = set(space_.get(lse_)[row]), low = set(space_.get(lse_low_)[row]),
                d = set(space_.get(row_sums_)[row]);
      MOTET_UNROLL(4) for (int c = r * kKeys; c < (r + 1) * kKeys; c += kLanes) {
        const Vec w = exp2(hn::Sub(from_top(load(p + c), high), low));
        store(p + c, w);
        store(g + c, hn::Mul(w, hn::Sub(load(g + c), d)));
      }
    }
  }

  void add_tile(int64_t first, int subs, int64_t j) {
    make_logits(first, subs, j);
    make_grads(first, subs, j);
    for (int64_t s = first; s < first + subs; ++s) weigh(s);
    add_queries(first, subs, j);
  }

  // dQ += dS K.
  void add_queries(int64_t first, int subs, int64_t j) {
    constexpr int64_t kKeys = kBackwardKeys;
    const int64_t head = p_.key_of[task_.unit.score0];
    const float* const k = keys_.k_columns(task_.b, j, head);
    const auto dq = [&](int64_t s) { return space_.get(dq_) + s * kRows * d_; };
    if (HWY_UNLIKELY(by_tiles_)) {
      const TileRows ds = tile_products_.weights<kKeys>(
          subs, [&](int i) { return Weights{grads(first + i), {0, sees(first + i, j) ? kKeys : 0}}; });
      const int64_t next = first + subs < count() ? j : next_tile(j);
      return tile_products_.values<kKeys>(
          ds, k, {0, kKeys}, p_.D, [&](int i) { return sees(first + i, j) ? dq(first + i) : nullptr; },
          keys_.k(task_.b, next, head));
    }
    const float* const dk = share(shared_.dk.at(task_.b, next_tile(j), head), p_.D * kKeys, first, count());
    const float* const next = share(keys_.k_columns(task_.b, next_tile(j), head), d_ * kKeys, first, count());
    const Ahead ahead(dq(first + 1), next, dk);
    for (int64_t column = 0; column < d_; column += kPanel) {
      const ColumnPanel panel = column_panel(p_.D, column);
      const int64_t line = column / kPanel * kKeys / kStepsOfLine;
      product<true>(
          {grads(first), kKeys, 1, k + column * kKeys, panel.width, dq(first) + column, d_, kKeys, &ahead, line},
          subs_[first].rows, panel.width);
    }
  }

  HWY_INLINE void see(size_t weights, size_t vectors, int64_t row) {
    rows_.clear();
    for (const int64_t s : active_)
      rows_.push_back(
          {space_.get(weights) + s * kRows * kBackwardKeys, space_.get(vectors) + s * kRows * row, subs_[s].rows, s});
  }

  // dV += P^T dout, dK += dS^T Q of a tile.
  void add_values(float* dv) {
    see(weights_, dout_, e_);
    if (HWY_UNLIKELY(by_tiles_))
      return TurnedSums{tile_products_, products_, turned_values_}.add(rows_, space_.get(dout_turned_), dv);
    add_turned(rows_.data(), static_cast<int>(rows_.size()), p_.E, dv);
  }
  void add_keys(float* dk) {
    see(grads_, q_, d_);
    if (HWY_UNLIKELY(by_tiles_))
      return TurnedSums{tile_products_, products_, turned_keys_}.add(rows_, space_.get(q_turned_), dk);
    add_turned(rows_.data(), static_cast<int>(rows_.size()), p_.D, dk);
  }

  void write_out() {
    if (!to_.q) return;
    for (int64_t s = 0; s < count(); ++s)
      for (int r = 0; r < subs_[s].count; ++r)
        scale_row(space_.get(dq_) + (s * kRows + r) * d_, static_cast<float>(p_.scale), p_.D,
                  to_.q + ((task_.b * p_.T + subs_[s].t0 + r) * p_.score_heads + task_.unit.score0) * p_.D);
  }

  const Call& call_;
  const Problem& p_;
  const Products& products_;
  const bool by_tiles_;
  const PackedKeys<kBackwardKeys>& keys_;
  BackwardShared& shared_;
  const BlockTurns& turns_;
  const Incoming& from_;
  const Gradients& to_;
  const int64_t block_rows_, d_, e_, together_;
  const PartsOfBlock query_parts_, dout_parts_;
  const TurnedBlock turned_keys_, turned_values_;
  Workspace space_;
  TileProducts tile_products_;
  size_t q_tiles_ = 0, dout_tiles_ = 0, q_turned_ = 0, dout_turned_ = 0;
  size_t q_, dq_, dout_, weights_, grads_, lse_, lse_low_, totals_, row_sums_;
  BackwardTask task_{};
  std::vector<SubBlock> subs_;
  std::vector<int64_t> active_;
  std::vector<QueryRows> rows_;
};

/// Forward without mixes: every head and block is a task of its own, the longest blocks first.
HWY_INLINE Status run_online_forward(const Call& call, const Output& to) {
  const Mixes mixes(call);
  const Products products(call);
  PackedKeys<kForwardKeys> keys(call, mixes, false, products);
  if (!keys.allocate()) return Status::out_of_memory;
  keys.pack();
  const int64_t blocks = call.blocks(round_up(call.plan.forward_rows, kOnlineRows)),
                units = static_cast<int64_t>(call.plan.units.size());
  Tasks tasks(call.p.B * units * blocks);
  std::atomic<bool> failed = false;
  call.runtime.threads.run(std::min<int64_t>(call.runtime.threads.count, call.p.B * units * blocks), [&](int64_t) {
    const ProductsOfThread own(products);
    OnlineForward worker(call, keys, products);
    if (!worker.allocate()) {
      failed = true;
      return;
    }
    for (int64_t task; (task = tasks.next()) >= 0;)
      worker.run(task / blocks / units, blocks - 1 - task % blocks, call.plan.units[task / blocks % units], to);
  });
  return failed ? Status::out_of_memory : Status::ok;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
