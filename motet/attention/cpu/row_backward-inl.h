// The skeleton of every mixed case, backward: five products, nothing stored by the forward pass but lse.
//
// Pass 1, tile by tile: scores, pre mix and P = exp(L - lse) again; dU = dout V^T; backward of the post mix, which also
// gives U and the row sums D = sum P dP; dV += U^T dout. Pass 2: dL = P (dP - D); backward of the pre mix; dQ += dS K;
// dK += dS^T Q. Scores, P and dP of a block of queries are kept between the passes (three row buffers).
#if defined(MOTET_CPU_ROW_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_ROW_BACKWARD_INL_H
#undef MOTET_CPU_ROW_BACKWARD_INL_H
#else
#define MOTET_CPU_ROW_BACKWARD_INL_H
#endif

#include "motet/attention/cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

class RowBackward {
 public:
  RowBackward(const Call& call, const Mixes& mixes, const Products& products, const PackedKeys<kBackwardKeys>& keys,
              BackwardShared& shared, const BlockTurns& turns, const Incoming& from, const Gradients& to)
      : call_(call),
        p_(call.p),
        mixes_(mixes),
        products_(products),
        by_tiles_(products.tiles()),
        keys_(keys),
        shared_(shared),
        turns_(turns),
        from_(from),
        to_(to),
        block_rows_(call.plan.backward_rows),
        group_(group_of(products, call.plan.backward_group)),
        query_parts_(products, block_rows_, p_.D, products.scale_left()),
        dout_parts_(products, block_rows_, p_.E, 1),
        turned_keys_(products, block_rows_, p_.D, products.scale_left()),
        turned_values_(products, block_rows_, p_.E, 1),
        tile_products_(products, space_, block_rows_) {
    const Unit& unit = call.plan.units.front();
    const int64_t subs = block_rows_ / kRows;
    const int64_t span = p_.window > 0 ? std::min(p_.S, p_.window + block_rows_) : p_.S;
    tiles_ = std::min(call.tiles(kBackwardKeys), span / kBackwardKeys + 2);
    d_ = padded_width(p_.D), e_ = padded_width(p_.E);
    const int64_t row_tile = kRows * kBackwardKeys;
    score_tile_ = odd_heads(unit.scores) * row_tile, weight_tile_ = odd_heads(unit.softmax) * row_tile;
    out_tile_ = odd_heads(unit.outputs) * row_tile;
    grad_tile_ = std::max({score_tile_, weight_tile_});
    q_ = space_.reserve(subs * unit.scores * kRows * d_);
    dq_ = space_.reserve(subs * unit.scores * kRows * d_);
    dout_ = space_.reserve(subs * unit.outputs * kRows * e_);
    scores_ = space_.reserve(mixes.pre.passes() ? 0 : subs * tiles_ * score_tile_ + row_tile);
    weights_ = space_.reserve(subs * tiles_ * weight_tile_ + row_tile);
    grads_ = space_.reserve(subs * tiles_ * grad_tile_ + row_tile);
    mixed_ = space_.reserve(mixes.post.passes() ? 0 : subs * out_tile_);
    mixed_grad_ = space_.reserve(mixes.post.passes() ? 0 : group_ * out_tile_ + row_tile);
    lse_ = space_.reserve(subs * unit.softmax * kRows), lse_low_ = space_.reserve(subs * unit.softmax * kRows);
    totals_ = space_.reserve(subs * unit.softmax * kRows);
    row_sums_ = space_.reserve(subs * kRows * padded_heads(unit.softmax));
    inverse_ = space_.reserve(subs * kRows * padded_heads(unit.softmax));
    pre_rows_ = space_.reserve(subs * mixes.pre.row_band), post_rows_ = space_.reserve(subs * mixes.post.row_band);
    pre_sums_ = space_.reserve(subs * mixes.pre.row_gradients + mixes.pre.shared_gradients);
    post_sums_ = space_.reserve(subs * mixes.post.row_gradients + mixes.post.shared_gradients);
    scratch_ = space_.reserve(std::max(mixes.pre.scratch, mixes.post.scratch));
    if (!by_tiles_) return;
    q_tiles_ = space_.reserve(unit.scores * query_parts_.size);
    dout_tiles_ = space_.reserve(unit.outputs * dout_parts_.size);
    q_turned_ = space_.reserve(unit.scores * turned_keys_.size);
    dout_turned_ = space_.reserve(unit.outputs * turned_values_.size);
  }
  bool allocate() { return space_.allocate(); }

  void run(const BackwardTask& task) {
    start(task);
    refine_lse();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      const int64_t place = turns_.place(task_.b, task_.cluster, j);
      const int64_t turn = turns_.turn(task_.b, task_.block, j, task_.unit_index, task_.units);
      shared_.first_pass.wait(place, turn);
      each_group(count(), group_, [&](const Group& group) { first_pass(group, j); });
      add_values(j);
      shared_.first_pass.finish(place, turn);
    }
    finish_rows();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      const int64_t place = turns_.place(task_.b, task_.cluster, j);
      const int64_t turn = turns_.turn(task_.b, task_.block, j, task_.unit_index, task_.units);
      shared_.second_pass.wait(place, turn);
      each_group(count(), group_, [&](const Group& group) { second_pass(group, j); });
      add_keys(j);
      shared_.second_pass.finish(place, turn);
    }
    write_out();
  }

 private:
  int64_t count() const { return static_cast<int64_t>(subs_.size()); }
  float* of(size_t handle, int64_t s, int64_t size) const { return space_.get(handle) + s * size; }
  float* scores(int64_t s, int64_t j) const { return of(scores_, (j - first_tile_) * count() + s, score_tile_); }
  float* weights(int64_t s, int64_t j) const { return of(weights_, (j - first_tile_) * count() + s, weight_tile_); }
  float* grads(int64_t s, int64_t j) const { return of(grads_, (j - first_tile_) * count() + s, grad_tile_); }
  // Scores before the pre mix; without one they lie where the weights will.
  float* raw_scores(int64_t s, int64_t j) const { return mixes_.pre.passes() ? weights(s, j) : scores(s, j); }
  // The gradient of the mixed weights: in place of theirs where the post mix works so.
  float* mixed_grads(int64_t s, int64_t j, const Group& group) const {
    const bool in_place = mixes_.post.backward_in_place() || mixes_.post.passes();
    return in_place ? grads(s, j) : of(mixed_grad_, s - group.first, out_tile_);
  }
  // The gradient of the scores: in place of the scores, or of dL where there is no pre mix.
  float* score_grads(int64_t s, int64_t j) const { return mixes_.pre.passes() ? grads(s, j) : scores(s, j); }
  float* mixed(int64_t s, int64_t j) const { return mixes_.post.passes() ? weights(s, j) : of(mixed_, s, out_tile_); }
  float* q(int64_t s, int64_t h) const { return of(q_, s * task_.unit.scores + h, kRows * d_); }
  float* q_tiles(int64_t h) const { return of(q_tiles_, h, query_parts_.size); }
  float* dout_tiles(int64_t o) const { return of(dout_tiles_, o, dout_parts_.size); }
  float* q_turned(int64_t h) const { return of(q_turned_, h, turned_keys_.size); }
  float* dout_turned(int64_t o) const { return of(dout_turned_, o, turned_values_.size); }
  float* dq(int64_t s, int64_t h) const { return of(dq_, s * task_.unit.scores + h, kRows * d_); }
  float* dout(int64_t s, int64_t o) const { return of(dout_, s * task_.unit.outputs + o, kRows * e_); }
  float* row_sums(int64_t s) const { return of(row_sums_, s, kRows * padded_heads(task_.unit.softmax)); }
  float* inverse(int64_t s) const { return of(inverse_, s, kRows * padded_heads(task_.unit.softmax)); }
  float* sums(const Mix& mix, size_t handle, int64_t s) const {
    return of(handle, mix.shared_gradients ? 0 : s, mix.row_gradients);
  }
  int64_t next_tile(int64_t j) const { return std::min(j + 1, end_tile_ - 1); }
  bool sees(int64_t s, int64_t j) const { return !subs_[s].part(j * kBackwardKeys, kBackwardKeys).empty(); }

  void start(const BackwardTask& task) {
    task_ = task;
    mixes_.post.first_out = static_cast<int>(task.unit.output0);
    const int64_t t0 = task.block * block_rows_;
    const Span seen = make_subs(call_.sight, task.b, t0, std::min(t0 + block_rows_, p_.T), subs_);
    for (int64_t s = 0; s < count(); ++s) gather(s);
    if (HWY_UNLIKELY(by_tiles_)) turn();
    first_tile_ = seen.begin / kBackwardKeys, end_tile_ = (seen.end + kBackwardKeys - 1) / kBackwardKeys;
    std::fill_n(space_.get(dq_), count() * task.unit.scores * kRows * d_, 0.f);
    std::fill_n(space_.get(totals_), count() * task.unit.softmax * kRows, 0.f);
    std::fill_n(space_.get(row_sums_), count() * kRows * padded_heads(task.unit.softmax), 0.f);
    std::fill_n(space_.get(pre_sums_), count() * mixes_.pre.row_gradients + mixes_.pre.shared_gradients, 0.f);
    std::fill_n(space_.get(post_sums_), count() * mixes_.post.row_gradients + mixes_.post.shared_gradients, 0.f);
  }

  void turn() {
    for (int64_t h = 0; h < task_.unit.scores; ++h)
      turn_queries(products_, turned_keys_, count(), [&](int64_t s) { return q(s, h); }, q_turned(h));
    for (int64_t o = 0; o < task_.unit.outputs; ++o)
      turn_queries(products_, turned_values_, count(), [&](int64_t s) { return dout(s, o); }, dout_turned(o));
  }

  void gather(int64_t s) {
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    for (int64_t h = 0; h < unit.scores; ++h)
      gather_queries(p_.q, task_.b, sub, unit.score0 + h, p_.D, d_, products_.query_scale(), q(s, h));
    for (int64_t o = 0; o < unit.outputs; ++o)
      gather_queries(from_.dout, task_.b, sub, unit.output0 + o, p_.E, e_, 1, dout(s, o));
    for (int64_t h = 0; by_tiles_ && h < unit.scores; ++h)
      products_.split_rows(q(s, h), d_, p_.D, query_parts_.at(q_tiles(h), s), query_parts_.part);
    for (int64_t o = 0; by_tiles_ && o < unit.outputs; ++o)
      products_.split_rows(dout(s, o), e_, p_.E, dout_parts_.at(dout_tiles(o), s), dout_parts_.part);
    gather_rows(mixes_.pre, task_.b, sub.t0, sub.count, of(pre_rows_, s, mixes_.pre.row_band));
    gather_rows(mixes_.post, task_.b, sub.t0, sub.count, of(post_rows_, s, mixes_.post.row_band));
    for (int64_t a = 0; a < unit.softmax; ++a)
      for (int r = 0; r < kRows; ++r) {
        set_subtracted(subtracted(s), a * kRows + r,
                       r < sub.count ? from_.lse[(task_.b * p_.softmax_heads + unit.softmax0 + a) * p_.T + sub.t0 + r]
                                     : -INFINITY);
      }
  }

  // P of a group on a tile, and the scores before it.
  void make_weights(const Group& group, int64_t j) {
    if (HWY_UNLIKELY(by_tiles_))
      make_scores_by_tiles(group, j);
    else
      make_scores(group, j);
    for (int64_t s = group.first; s < group.end; ++s)
      if (sees(s, j)) weigh(s, j);
  }

  void make_scores(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kBackwardKeys;
    const int64_t heads = task_.unit.scores;
    const auto keys = [&](int64_t tile, int64_t h) { return keys_.k(task_.b, tile, p_.key_of[task_.unit.score0 + h]); };
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t s = group.first; s < group.end; ++s) {
        if (!sees(s, j)) continue;
        const int64_t next = group.next(s), next_head = group.next_head(s, h);
        const float* const k = keys_ahead(group, s, {h, heads, j, next_tile(j)}, p_.D * kBackwardKeys, keys);
        const Ahead ahead(raw_scores(next, j) + next_head * kTile, q(next, next_head), weights(s, j) + h * kTile, k, k);
        score_tile<kBackwardKeys>(q(s, h), d_, keys(j, h), p_.D, subs_[s].rows, kBackwardKeys,
                                  raw_scores(s, j) + h * kTile, &ahead);
      }
  }

  bool some_see(int64_t first, int subs, int64_t j) const {
    for (int i = 0; i < subs; ++i)
      if (sees(first + i, j)) return true;
    return false;
  }

  // Calls work(head, first, subs, whether the next head follows) for what tiles make together of a group and a tile.
  template <class Work>
  HWY_INLINE void each_product(const Group& group, int64_t j, int64_t heads, const Work& work) {
    for (int64_t h = 0; h < heads; ++h)
      each_together(group.first, group.end, kSubsTogether, [&](int64_t first, int subs) {
        const int64_t next = first + subs == group.end ? (h + 1) % heads : h;
        if (some_see(first, subs, j)) work(h, first, subs, next);
      });
  }

  void make_scores_by_tiles(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kBackwardKeys;
    const auto keys = [&](int64_t h) { return keys_.k(task_.b, j, p_.key_of[task_.unit.score0 + h]); };
    each_product(group, j, task_.unit.scores, [&](int64_t h, int64_t first, int subs, int64_t next) {
      const auto to = [&](int i) { return sees(first + i, j) ? raw_scores(first + i, j) + h * kTile : nullptr; };
      tile_products_.scores<kBackwardKeys>(query_parts_.rows(q_tiles(h), first, subs), keys(h), kBackwardKeys, to,
                                           keys(next));
    });
  }

  void make_mixed_grads_by_tiles(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kBackwardKeys;
    const auto values = [&](int64_t o) { return keys_.v_turned(task_.b, j, p_.value_of[task_.unit.output0 + o]); };
    each_product(group, j, task_.unit.outputs, [&](int64_t o, int64_t first, int subs, int64_t next) {
      const auto to = [&](int i) {
        return sees(first + i, j) ? mixed_grads(first + i, j, group) + o * kTile : nullptr;
      };
      tile_products_.scores<kBackwardKeys>(dout_parts_.rows(dout_tiles(o), first, subs), values(o), kBackwardKeys, to,
                                           values(next));
    });
  }

  void add_queries_by_tiles(const Group& group, int64_t j) {
    constexpr int64_t kKeys = kBackwardKeys, kTile = kRows * kKeys;
    const auto keys = [&](int64_t h) { return keys_.k_columns(task_.b, j, p_.key_of[task_.unit.score0 + h]); };
    each_product(group, j, task_.unit.scores, [&](int64_t h, int64_t first, int subs, int64_t next) {
      const TileRows ds = tile_products_.weights<kKeys>(subs, [&](int i) {
        return Weights{score_grads(first + i, j) + h * kTile, {0, sees(first + i, j) ? kKeys : 0}};
      });
      const auto to = [&](int i) { return sees(first + i, j) ? dq(first + i, h) : nullptr; };
      tile_products_.values<kKeys>(ds, keys(h), {0, kKeys}, p_.D, to, keys(next));
    });
  }

  void weigh(int64_t s, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    float* const p = weights(s, j);
    float* const a = raw_scores(s, j);
    if (!mixes_.pre.passes())
      mixes_.pre.apply_narrow(mixes_.pre, {a, p, nullptr, of(pre_rows_, s, mixes_.pre.row_band), keys_.pre(task_.b, j),
                                           space_.get(scratch_), sub.rows, kKeys});
    if (!sees_all(call_, task_.b, sub, j * kKeys, {0, kKeys}))
      hide_unseen<kKeys>(call_, task_.b, sub, j * kKeys, {0, kKeys}, static_cast<int>(unit.softmax), p);
    exp2_rows<kKeys>(p, static_cast<int>(unit.softmax), sub.rows, kKeys, subtracted(s),
                     of(totals_, s, unit.softmax * kRows));
  }

  // A float has too few bits for a large lse: then the weights would not sum to 1, and the sums are made anew.
  void refine_lse() {
    const int64_t size = task_.unit.softmax * kRows;
    if (!needs_refining(space_.get(lse_), count() * size)) return;
    for (int64_t j = first_tile_; j < end_tile_; ++j)
      each_group(count(), group_, [&](const Group& group) { make_weights(group, j); });
    refine(space_.get(totals_), space_.get(lse_low_), count() * size);
  }

  Subtracted subtracted(int64_t s) const {
    return {of(lse_, s, task_.unit.softmax * kRows), of(lse_low_, s, task_.unit.softmax * kRows)};
  }

  void first_pass(const Group& group, int64_t j) {
    make_weights(group, j);
    if (HWY_UNLIKELY(by_tiles_))
      make_mixed_grads_by_tiles(group, j);
    else
      make_mixed_grads(group, j);
    for (int64_t s = group.first; s < group.end; ++s)
      if (sees(s, j)) post_backward(s, j, mixed_grads(s, j, group));
  }

  // dU = dout V^T.
  void make_mixed_grads(const Group& group, int64_t j) {
    constexpr int64_t kTile = kRows * kBackwardKeys;
    const int64_t heads = task_.unit.outputs, piece = p_.E * kBackwardKeys;
    const auto values = [&](int64_t tile, int64_t o) {
      return keys_.v_turned(task_.b, tile, p_.value_of[task_.unit.output0 + o]);
    };
    for (int64_t o = 0; o < heads; ++o)
      for (int64_t s = group.first; s < group.end; ++s) {
        if (!sees(s, j)) continue;
        const int64_t next = group.next(s), next_head = group.next_head(s, o);
        const float* const v = keys_ahead(group, s, {o, heads, j, next_tile(j)}, piece, values);
        const float* const dv =
            share(shared_.dv.at(task_.b, j, p_.value_of[task_.unit.output0 + o]), piece, s, count());
        const Ahead ahead(mixed_grads(next, j, group) + next_head * kTile, dout(next, next_head),
                          grads(s, j) + o * kTile, v, dv);
        score_tile<kBackwardKeys>(dout(s, o), e_, values(j, o), p_.E, subs_[s].rows, kBackwardKeys,
                                  mixed_grads(s, j, group) + o * kTile, &ahead);
      }
  }

  // The post mix backward: its output U again, dP and D.
  void post_backward(int64_t s, int64_t j, float* du) {
    constexpr int kKeys = kBackwardKeys;
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    float* const p = weights(s, j);
    if (mixes_.post.passes()) {
      add_row_sums(p, du, static_cast<int>(unit.softmax), sub.rows, kKeys, row_sums(s));
      return;
    }
    mixes_.post.backward(
        mixes_.post, {p, du, nullptr, mixed(s, j), grads(s, j), row_sums(s), of(post_rows_, s, mixes_.post.row_band),
                      keys_.post(task_.b, j), sums(mixes_.post, post_sums_, s),
                      shared_.post_keys.size ? shared_.post_keys.at(task_.b, j, 0) : nullptr, space_.get(scratch_),
                      sub.rows, kKeys});
  }

  // 1 / Z and D / Z of every row.
  void finish_rows() {
    const int64_t heads = task_.unit.softmax;
    for (int64_t s = 0; s < count(); ++s)
      for (int64_t x = 0; x < heads * kRows; ++x) {
        const int64_t at = pair_place(x % kRows, x / kRows, heads);
        const float total = of(totals_, s, heads * kRows)[x];
        inverse(s)[at] = total > 0 ? 1 / total : 0;
        row_sums(s)[at] *= inverse(s)[at];
      }
  }

  void second_pass(const Group& group, int64_t j) {
    for (int64_t s = group.first; s < group.end; ++s)
      if (sees(s, j)) pre_backward(s, j);
    if (HWY_UNLIKELY(by_tiles_))
      add_queries_by_tiles(group, j);
    else
      add_queries(group, j);
  }

  // dL = P (dP - D), and the pre mix backward: dS.
  void pre_backward(int64_t s, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    const SoftmaxTile softmax{weights(s, j), inverse(s), row_sums(s)};
    if (mixes_.pre.passes())
      softmax_backward(softmax, grads(s, j), static_cast<int>(unit.softmax), sub.rows);
    else
      mixes_.pre.backward(mixes_.pre,
                          {scores(s, j), grads(s, j), &softmax, nullptr, scores(s, j), nullptr,
                           of(pre_rows_, s, mixes_.pre.row_band), keys_.pre(task_.b, j), sums(mixes_.pre, pre_sums_, s),
                           shared_.pre_keys.size ? shared_.pre_keys.at(task_.b, j, 0) : nullptr, space_.get(scratch_),
                           sub.rows, kKeys});
  }

  // dQ += dS K.
  void add_queries(const Group& group, int64_t j) {
    constexpr int64_t kKeys = kBackwardKeys, kTile = kRows * kKeys;
    const int64_t heads = task_.unit.scores;
    const auto keys = [&](int64_t tile, int64_t h) {
      return keys_.k_columns(task_.b, tile, p_.key_of[task_.unit.score0 + h]);
    };
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t s = group.first; s < group.end; ++s) {
        if (!sees(s, j)) continue;
        const float* const ds = score_grads(s, j) + h * kTile;
        const float* const k = keys(j, h);
        const float* const later = keys_ahead(group, s, {h, heads, j, next_tile(j)}, d_ * kKeys, keys);
        // Of the row buffers, what the next group reads.
        const Ahead ahead(
            dq(group.next(s), group.next_head(s, h)), score_grads(s, j) + group_ * score_tile_ + h * kTile,
            weights(s, j) + group_ * weight_tile_ + h * kTile, grads(s, j) + group_ * grad_tile_ + h * kTile, later);
        for (int64_t column = 0; column < d_; column += kPanel) {
          const ColumnPanel panel = column_panel(p_.D, column);
          const int64_t line = column / kPanel * kKeys / kStepsOfLine;
          product<true>({ds, kKeys, 1, k + column * kKeys, panel.width, dq(s, h) + column, d_, kKeys, &ahead, line},
                        subs_[s].rows, panel.width);
        }
      }
  }

  // dV += U^T dout of a tile, over all sub-blocks that see it.
  void add_values(int64_t j) {
    for (int64_t o = 0; o < task_.unit.outputs; ++o) {
      see(j,
          [&](int64_t s) { return QueryRows{mixed(s, j) + o * kRows * kBackwardKeys, dout(s, o), subs_[s].rows, s}; });
      float* const dv = shared_.dv.at(task_.b, j, p_.value_of[task_.unit.output0 + o]);
      if (HWY_UNLIKELY(by_tiles_))
        TurnedSums{tile_products_, products_, turned_values_}.add(active_, dout_turned(o), dv);
      else
        add_turned(active_.data(), static_cast<int>(active_.size()), p_.E, dv);
    }
  }

  // dK += dS^T Q of a tile.
  void add_keys(int64_t j) {
    for (int64_t h = 0; h < task_.unit.scores; ++h) {
      see(j, [&](int64_t s) {
        return QueryRows{score_grads(s, j) + h * kRows * kBackwardKeys, q(s, h), subs_[s].rows, s};
      });
      float* const dk = shared_.dk.at(task_.b, j, p_.key_of[task_.unit.score0 + h]);
      if (HWY_UNLIKELY(by_tiles_))
        TurnedSums{tile_products_, products_, turned_keys_}.add(active_, q_turned(h), dk);
      else
        add_turned(active_.data(), static_cast<int>(active_.size()), p_.D, dk);
    }
  }

  // The rows of the sub-blocks that see a tile.
  template <class RowsOf>
  HWY_INLINE void see(int64_t j, RowsOf rows_of) {
    active_.clear();
    for (int64_t s = 0; s < count(); ++s)
      if (sees(s, j)) active_.push_back(rows_of(s));
  }

  void write_out() {
    float* const pre_weight = to_.pre[kWeight] ? block_weight(shared_.pre_weight) : nullptr;
    float* const post_weight = to_.post[kWeight] ? block_weight(shared_.post_weight) : nullptr;
    for (int64_t s = 0; s < count(); ++s) {
      const SubBlock& sub = subs_[s];
      for (int64_t h = 0; h < task_.unit.scores && to_.q; ++h)
        for (int r = 0; r < sub.count; ++r)
          scale_row(dq(s, h) + r * d_, static_cast<float>(p_.scale), p_.D,
                    to_.q + ((task_.b * p_.T + sub.t0 + r) * p_.score_heads + task_.unit.score0 + h) * p_.D);
      const RowScatter where{task_.b, sub.t0, p_.T, sub.count, &to_.pre, nullptr, 0, pre_weight, nullptr};
      scatter_rows(mixes_.pre, where, sums(mixes_.pre, pre_sums_, s));
      const RowScatter post{task_.b,         sub.t0,      p_.T,
                            sub.count,       &to_.post,   to_.lambda,
                            p_.output_heads, post_weight, of(totals_, s, task_.unit.softmax * kRows)};
      scatter_rows(mixes_.post, post, sums(mixes_.post, post_sums_, s));
    }
    scatter_shared(mixes_.pre, space_.get(pre_sums_), pre_weight);
    scatter_shared(mixes_.post, space_.get(post_sums_), post_weight);
  }

  // The sum of this block for a static weight, cleared.
  float* block_weight(size_t handle) {
    float* sum = shared_.space.get(handle) + (task_.b * call_.blocks(block_rows_) + task_.block) * shared_.weights;
    std::fill_n(sum, shared_.weights, 0.f);
    return sum;
  }

  const Call& call_;
  const Problem& p_;
  Mixes mixes_;
  const Products& products_;
  const bool by_tiles_;
  const PackedKeys<kBackwardKeys>& keys_;
  BackwardShared& shared_;
  const BlockTurns& turns_;
  const Incoming& from_;
  const Gradients& to_;
  const int64_t block_rows_, group_;
  const PartsOfBlock query_parts_, dout_parts_;
  const TurnedBlock turned_keys_, turned_values_;
  int64_t tiles_ = 0, d_ = 0, e_ = 0, score_tile_ = 0, weight_tile_ = 0, grad_tile_ = 0, out_tile_ = 0;
  Workspace space_;
  TileProducts tile_products_;
  size_t q_tiles_ = 0, dout_tiles_ = 0, q_turned_ = 0, dout_turned_ = 0;
  size_t q_, dq_, dout_, scores_, weights_, grads_, mixed_, mixed_grad_, lse_, lse_low_, totals_, row_sums_, inverse_,
      pre_rows_, post_rows_, pre_sums_, post_sums_, scratch_;
  BackwardTask task_{};
  int64_t first_tile_ = 0, end_tile_ = 0;
  std::vector<SubBlock> subs_;
  std::vector<QueryRows> active_;
};

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
