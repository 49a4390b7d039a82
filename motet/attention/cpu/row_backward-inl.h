// The skeleton of every mixed case, backward: five products, nothing stored by the forward pass but lse.
//
// Pass 1, tile by tile: scores, pre mix and P = exp(L - lse) again; dU = dout V^T; backward of the post mix, which also
// gives U and the row sums D = sum P dP; dV += U^T dout. Pass 2: dL = P (dP - D); backward of the pre mix; dQ += dS K;
// dK += dS^T Q. Scores, P and dP of a block of queries are kept between the passes (three row buffers).
//
// Gradients of a tile of keys are added block of queries by block of queries in a fixed order (turns), the last block
// first, whatever the number of threads.
#if defined(MOTET_CPU_ROW_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_ROW_BACKWARD_INL_H
#undef MOTET_CPU_ROW_BACKWARD_INL_H
#else
#define MOTET_CPU_ROW_BACKWARD_INL_H
#endif

#include "motet/attention/cpu/row_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// The rows of one sub-block in a product over queries: weights [rows][kBackwardKeys] and vectors [rows][x_row].
struct QueryRows {
  const float *weights, *x;
  int rows;
};

template <int kMR, int kNR>
HWY_INLINE void add_turned_block(const QueryRows* subs, int count, int64_t x_row, float* c, int64_t c_row, int key,
                                 int column) {
  Vec sum[kMR][kNR];
  MOTET_UNROLL(8) for (int i = 0; i < kMR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kNR; ++j) sum[i][j] = zero();
  for (int s = 0; s < count; ++s) {
    const float* w = subs[s].weights + key;
    const float* x = subs[s].x + column;
    for (int r = 0; r < subs[s].rows; ++r, w += kBackwardKeys, x += x_row) {
      Vec v[kNR];
      MOTET_UNROLL(2) for (int j = 0; j < kNR; ++j) v[j] = load(x + j * kLanes);
      MOTET_UNROLL(8) for (int i = 0; i < kMR; ++i) {
        const Vec a = set(w[i]);
        MOTET_UNROLL(2) for (int j = 0; j < kNR; ++j) sum[i][j] = fma(a, v[j], sum[i][j]);
      }
    }
  }
  float* to = c + key * c_row + column;
  MOTET_UNROLL(8)
  for (int i = 0; i < kMR; ++i) MOTET_UNROLL(2)
  for (int j = 0; j < kNR; ++j)
    store(to + i * c_row + j * kLanes, hn::Add(load(to + i * c_row + j * kLanes), sum[i][j]));
}

/// c[key][column] += sum over the queries of weights[query][key] * x[query][column], for a tile of 32 keys and one
/// panel of `width` columns.
template <int kWidth>
HWY_INLINE void add_turned(const QueryRows* subs, int count, int64_t x_row, float* c) {
  constexpr int kMR = kLanes == 16 ? 8 : 4, kNR = kLanes == 16 ? kWidth / 16 : 2;
  for (int key = 0; key < kBackwardKeys; key += kMR) {
    for (int i = 0; i < kMR * kWidth; i += 16) prefetch_l1(c + (key + 2 * kMR) * kWidth + i);
    for (int column = 0; column < kWidth; column += kNR * kLanes)
      add_turned_block<kMR, kNR>(subs, count, x_row, c, kWidth, key, column);
  }
}

/// What the workers of a backward run share.
struct BackwardShared {
  Workspace space;
  GradientTiles dk, dv;
  Pieces pre_keys, post_keys;              // gradients of the key bands
  size_t pre_weight = 0, post_weight = 0;  // of each block: its sum for the static weight
  int64_t weights = 0;                     // floats of one such sum
  Turns first_pass, second_pass;           // [B][cluster][tile]

  BackwardShared(const Call& call, const Mixes& mixes, const Gradients& g, int64_t blocks)
      : dk(space, g.k, call.p.B, call.p.S, call.p.key_heads, call.p.D),
        dv(space, g.v, call.p.B, call.p.S, call.p.value_heads, call.p.E),
        first_pass(places(call)),
        second_pass(places(call)) {
    const int64_t tiles = call.tiles(kBackwardKeys);
    pre_keys = Pieces(space, call.p.B, tiles, 1, mixes.pre.key_numbers * kBackwardKeys, false);
    post_keys = Pieces(space, call.p.B, tiles, 1, mixes.post.key_numbers * kBackwardKeys, false);
    weights = std::max(int64_t{mixes.pre.in} * mixes.pre.out, int64_t{mixes.post.in} * mixes.post.out);
    if (g.pre[kWeight]) pre_weight = space.reserve(call.p.B * blocks * weights);
    if (g.post[kWeight]) post_weight = space.reserve(call.p.B * blocks * weights);
  }
  static int64_t places(const Call& call) {
    return call.p.B * static_cast<int64_t>(call.plan.clusters.size()) * call.tiles(kBackwardKeys);
  }
  bool allocate() {
    if (!space.allocate()) return false;
    dk.allocated(space), dv.allocated(space);
    pre_keys.data = space.get(pre_keys.handle), post_keys.data = space.get(post_keys.handle);
    return true;
  }
  void clear(int64_t b, int64_t j) {
    dk.clear(b, j), dv.clear(b, j);
    if (pre_keys.size) std::fill_n(pre_keys.at(b, j, 0), pre_keys.size, 0.f);
    if (post_keys.size) std::fill_n(post_keys.at(b, j, 0), post_keys.size, 0.f);
  }
};

/// The place and turn of a block at a tile, for the gradients of its keys. Blocks that reach a tile follow one another,
/// the last one first: it is the longest where attention is causal, and threads then end together.
class BlockTurns {
 public:
  BlockTurns(const Call& call, int64_t block_rows) : call_(call), tiles_(call.tiles(kBackwardKeys)) {
    const int64_t blocks = call.blocks(block_rows);
    last_.assign(call.p.B * tiles_, -1);
    for (int64_t b = 0; b < call.p.B; ++b)
      for (int64_t i = 0; i < blocks; ++i) {
        const Span keys = call.sight.keys(b, i * block_rows, std::min((i + 1) * block_rows, call.p.T));
        if (keys.empty()) continue;
        for (int64_t j = keys.begin / kBackwardKeys; j * kBackwardKeys < keys.end; ++j) last_[b * tiles_ + j] = i;
      }
  }
  int64_t place(int64_t b, int64_t cluster, int64_t j) const {
    return (b * static_cast<int64_t>(call_.plan.clusters.size()) + cluster) * tiles_ + j;
  }
  int64_t turn(int64_t b, int64_t block, int64_t j, int64_t unit, int64_t units) const {
    return (last_[b * tiles_ + j] - block) * units + unit;
  }

 private:
  const Call& call_;
  int64_t tiles_;
  std::vector<int64_t> last_;  // block that reaches the tile
};

/// One task of a backward run: a block of queries of one unit.
struct BackwardTask {
  int64_t b, block, cluster, unit_index, units;
  Unit unit;
};

// Beyond this lse (in powers of 2) its rounding, 2^-24 of it, reaches the gradients.
constexpr float kCoarseLse = 32;

HWY_INLINE bool needs_refining(const float* high, int64_t count) {
  return std::any_of(high, high + count, [](float x) { return std::abs(x) > kCoarseLse && std::isfinite(x); });
}

/// Takes the sums of weights, which should be 1, into what is subtracted, and clears them.
HWY_INLINE void refine(float* totals, float* low, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (totals[i] > 0) low[i] += std::log2(totals[i]);
    totals[i] = 0;
  }
}

class RowBackward {
 public:
  RowBackward(const Call& call, const Mixes& mixes, const PackedKeys<kBackwardKeys>& keys, BackwardShared& shared,
              const BlockTurns& turns, const Incoming& from, const Gradients& to)
      : call_(call),
        p_(call.p),
        mixes_(mixes),
        keys_(keys),
        shared_(shared),
        turns_(turns),
        from_(from),
        to_(to),
        block_rows_(call.plan.backward_rows) {
    const Unit& unit = call.plan.units.front();
    const int64_t subs = block_rows_ / kRows;
    const int64_t span = p_.window > 0 ? std::min(p_.S, p_.window + block_rows_) : p_.S;
    tiles_ = std::min(call.tiles(kBackwardKeys), span / kBackwardKeys + 2);
    d_ = padded_width(p_.D), e_ = padded_width(p_.E);
    const int64_t row_tile = kRows * kBackwardKeys;
    score_tile_ = unit.scores * row_tile, weight_tile_ = unit.softmax * row_tile, out_tile_ = unit.outputs * row_tile;
    grad_tile_ = std::max({score_tile_, weight_tile_});
    q_ = space_.reserve(subs * unit.scores * kRows * d_);
    dq_ = space_.reserve(subs * unit.scores * kRows * d_);
    dout_ = space_.reserve(subs * unit.outputs * kRows * e_);
    scores_ = space_.reserve(mixes.pre.passes() ? 0 : subs * tiles_ * score_tile_ + row_tile);
    weights_ = space_.reserve(subs * tiles_ * weight_tile_ + row_tile);
    grads_ = space_.reserve(subs * tiles_ * grad_tile_ + row_tile);
    mixed_ = space_.reserve(mixes.post.passes() ? 0 : subs * out_tile_);
    mixed_grad_ = space_.reserve(mixes.post.passes() ? 0 : out_tile_ + row_tile);
    lse_ = space_.reserve(subs * unit.softmax * kRows), lse_low_ = space_.reserve(subs * unit.softmax * kRows);
    totals_ = space_.reserve(subs * unit.softmax * kRows);
    row_sums_ = space_.reserve(subs * kRows * padded_heads(unit.softmax));
    inverse_ = space_.reserve(subs * kRows * padded_heads(unit.softmax));
    pre_rows_ = space_.reserve(subs * mixes.pre.row_band), post_rows_ = space_.reserve(subs * mixes.post.row_band);
    pre_sums_ = space_.reserve(subs * mixes.pre.row_gradients + mixes.pre.shared_gradients);
    post_sums_ = space_.reserve(subs * mixes.post.row_gradients + mixes.post.shared_gradients);
    scratch_ = space_.reserve(std::max(mixes.pre.scratch, mixes.post.scratch));
  }
  bool allocate() { return space_.allocate(); }

  void run(const BackwardTask& task) {
    start(task);
    refine_lse();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      const int64_t place = turns_.place(task_.b, task_.cluster, j);
      const int64_t turn = turns_.turn(task_.b, task_.block, j, task_.unit_index, task_.units);
      shared_.first_pass.wait(place, turn);
      for (size_t s = 0; s < subs_.size(); ++s) first_pass(s, j);
      add_values(j);
      shared_.first_pass.finish(place, turn);
    }
    finish_rows();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      const int64_t place = turns_.place(task_.b, task_.cluster, j);
      const int64_t turn = turns_.turn(task_.b, task_.block, j, task_.unit_index, task_.units);
      shared_.second_pass.wait(place, turn);
      for (size_t s = 0; s < subs_.size(); ++s) second_pass(s, j);
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
  // The gradient of the scores: in place of the scores, or of dL where there is no pre mix.
  float* score_grads(int64_t s, int64_t j) const { return mixes_.pre.passes() ? grads(s, j) : scores(s, j); }
  float* mixed(int64_t s, int64_t j) const { return mixes_.post.passes() ? weights(s, j) : of(mixed_, s, out_tile_); }
  float* q(int64_t s, int64_t h) const { return of(q_, s * task_.unit.scores + h, kRows * d_); }
  float* dq(int64_t s, int64_t h) const { return of(dq_, s * task_.unit.scores + h, kRows * d_); }
  float* dout(int64_t s, int64_t o) const { return of(dout_, s * task_.unit.outputs + o, kRows * e_); }
  float* row_sums(int64_t s) const { return of(row_sums_, s, kRows * padded_heads(task_.unit.softmax)); }
  float* inverse(int64_t s) const { return of(inverse_, s, kRows * padded_heads(task_.unit.softmax)); }
  float* sums(const Mix& mix, size_t handle, int64_t s) const {
    return of(handle, mix.shared_gradients ? 0 : s, mix.row_gradients);
  }
  bool sees(int64_t s, int64_t j) const { return !subs_[s].part(j * kBackwardKeys, kBackwardKeys).empty(); }

  void start(const BackwardTask& task) {
    task_ = task;
    mixes_.post.first_out = static_cast<int>(task.unit.output0);
    const int64_t t0 = task.block * block_rows_, t1 = std::min(t0 + block_rows_, p_.T);
    subs_.clear();
    Span seen{p_.S, 0};
    for (int64_t t = t0; t < t1; t += kRows) {
      subs_.emplace_back(call_.sight, task.b, t, t1);
      if (!subs_.back().keys.empty())
        seen = {std::min(seen.begin, subs_.back().keys.begin), std::max(seen.end, subs_.back().keys.end)};
      gather(count() - 1);
    }
    if (seen.empty()) seen = {};
    first_tile_ = seen.begin / kBackwardKeys, end_tile_ = (seen.end + kBackwardKeys - 1) / kBackwardKeys;
    std::fill_n(space_.get(dq_), count() * task.unit.scores * kRows * d_, 0.f);
    std::fill_n(space_.get(totals_), count() * task.unit.softmax * kRows, 0.f);
    std::fill_n(space_.get(row_sums_), count() * kRows * padded_heads(task.unit.softmax), 0.f);
    std::fill_n(space_.get(pre_sums_), count() * mixes_.pre.row_gradients + mixes_.pre.shared_gradients, 0.f);
    std::fill_n(space_.get(post_sums_), count() * mixes_.post.row_gradients + mixes_.post.shared_gradients, 0.f);
  }

  void gather(int64_t s) {
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    for (int64_t h = 0; h < unit.scores; ++h)
      gather_queries(p_.q, task_.b, sub, unit.score0 + h, p_.D, d_, static_cast<float>(p_.scale), q(s, h));
    for (int64_t o = 0; o < unit.outputs; ++o)
      gather_queries(from_.dout, task_.b, sub, unit.output0 + o, p_.E, e_, 1, dout(s, o));
    gather_rows(mixes_.pre, task_.b, sub.t0, sub.count, of(pre_rows_, s, mixes_.pre.row_band));
    gather_rows(mixes_.post, task_.b, sub.t0, sub.count, of(post_rows_, s, mixes_.post.row_band));
    for (int64_t a = 0; a < unit.softmax; ++a)
      for (int r = 0; r < kRows; ++r) {
        set_subtracted(subtracted(s), a * kRows + r,
                       r < sub.count ? from_.lse[(task_.b * p_.softmax_heads + unit.softmax0 + a) * p_.T + sub.t0 + r]
                                     : -INFINITY);
      }
  }

  // P of a sub-block on a tile, and the scores before it.
  void make_weights(int64_t s, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    float* const p = weights(s, j);
    float* const a = mixes_.pre.passes() ? p : scores(s, j);
    for (int64_t h = 0; h < unit.scores; ++h) {
      if (!mixes_.pre.passes()) fetch_tile(p + h * kRows * kKeys);
      for (int64_t i = 0; i < kRows * d_; i += 16) prefetch_l1(q(s, h) + kRows * d_ + i);
      score_tile<kKeys>(q(s, h), d_, keys_.k(task_.b, j, p_.key_of[unit.score0 + h]), p_.D, sub.rows, kKeys,
                        a + h * kRows * kKeys);
    }
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
      for (int64_t s = 0; s < count(); ++s)
        if (sees(s, j)) make_weights(s, j);
    refine(space_.get(totals_), space_.get(lse_low_), count() * size);
  }

  Subtracted subtracted(int64_t s) const {
    return {of(lse_, s, task_.unit.softmax * kRows), of(lse_low_, s, task_.unit.softmax * kRows)};
  }

  void first_pass(int64_t s, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    if (!sees(s, j)) return;
    make_weights(s, j);
    const SubBlock& sub = subs_[s];
    const Unit& unit = task_.unit;
    float* const p = weights(s, j);
    float* const du = mixes_.post.backward_in_place() || mixes_.post.passes() ? grads(s, j) : space_.get(mixed_grad_);
    for (int64_t o = 0; o < unit.outputs; ++o) {
      if (!mixes_.post.passes() && !mixes_.post.backward_in_place()) fetch_tile(grads(s, j) + o * kRows * kKeys);
      for (int64_t i = 0; i < kRows * e_; i += 16) prefetch_l1(dout(s, o) + kRows * e_ + i);
      score_tile<kKeys>(dout(s, o), e_, keys_.v_turned(task_.b, j, p_.value_of[unit.output0 + o]), p_.E, sub.rows,
                        kKeys, du + o * kRows * kKeys);
    }
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

  void second_pass(int64_t s, int64_t j) {
    constexpr int kKeys = kBackwardKeys;
    if (!sees(s, j)) return;
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
    const float* ds = score_grads(s, j);
    for (int64_t h = 0; h < unit.scores; ++h) {
      const float* k = keys_.k_columns(task_.b, j, p_.key_of[unit.score0 + h]);
      fetch_next(s, j, h);
      for (int64_t column = 0; column < d_; column += kPanel) {
        const ColumnPanel panel = column_panel(p_.D, column);
        product<true>({ds + h * kRows * kKeys, kKeys, 1, k + column * kKeys, panel.width, dq(s, h) + column, d_, kKeys,
                       dq(s, h) + column + (column + kPanel < d_ ? kPanel : kRows * d_)},
                      sub.rows, panel.width);
      }
    }
  }

  // Lines of a row buffer that are written next: a store to a line that is far away would wait for it.
  static void fetch_tile(const float* tile) {
    for (int i = 0; i < kRows * kBackwardKeys; i += 16) prefetch_l2(tile + i);
  }

  // The buffers of the next sub-block come from L3 while this one is multiplied.
  void fetch_next(int64_t s, int64_t j, int64_t h) const {
    const int64_t next = h * kRows * kBackwardKeys;
    for (int i = 0; i < kRows * kBackwardKeys; i += 16) {
      if (!mixes_.pre.passes()) prefetch_l2(scores(s, j) + score_tile_ + next + i);
      prefetch_l2(weights(s, j) + weight_tile_ + next + i);
      prefetch_l2(grads(s, j) + grad_tile_ + next + i);
    }
  }

  // dV += U^T dout of a tile, over all sub-blocks that see it.
  void add_values(int64_t j) {
    for (int64_t o = 0; o < task_.unit.outputs; ++o) {
      float* const dv = shared_.dv.at(task_.b, j, p_.value_of[task_.unit.output0 + o]);
      add_panels(j, p_.E, dv, [&](int64_t s, int64_t column) {
        return QueryRows{mixed(s, j) + o * kRows * kBackwardKeys, dout(s, o) + column, subs_[s].rows};
      });
    }
  }

  // dK += dS^T Q of a tile.
  void add_keys(int64_t j) {
    for (int64_t h = 0; h < task_.unit.scores; ++h) {
      float* const dk = shared_.dk.at(task_.b, j, p_.key_of[task_.unit.score0 + h]);
      add_panels(j, p_.D, dk, [&](int64_t s, int64_t column) {
        return QueryRows{score_grads(s, j) + h * kRows * kBackwardKeys, q(s, h) + column, subs_[s].rows};
      });
    }
  }

  template <class RowsOf>
  HWY_INLINE void add_panels(int64_t j, int64_t width, float* to, RowsOf rows_of) {
    for (int64_t column = 0; column < width; column += kPanel) {
      active_.clear();
      for (int64_t s = 0; s < count(); ++s)
        if (sees(s, j)) active_.push_back(rows_of(s, column));
      const int64_t row = padded_width(width);
      const int subs = static_cast<int>(active_.size());
      if (column_panel(width, column).width == kPanel)
        add_turned<kPanel>(active_.data(), subs, row, to + column * kBackwardKeys);
      else
        add_turned<16>(active_.data(), subs, row, to + column * kBackwardKeys);
    }
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
  const PackedKeys<kBackwardKeys>& keys_;
  BackwardShared& shared_;
  const BlockTurns& turns_;
  const Incoming& from_;
  const Gradients& to_;
  const int64_t block_rows_;
  int64_t tiles_ = 0, d_ = 0, e_ = 0, score_tile_ = 0, weight_tile_ = 0, grad_tile_ = 0, out_tile_ = 0;
  Workspace space_;
  size_t q_, dq_, dout_, scores_, weights_, grads_, mixed_, mixed_grad_, lse_, lse_low_, totals_, row_sums_, inverse_,
      pre_rows_, post_rows_, pre_sums_, post_sums_, scratch_;
  BackwardTask task_{};
  int64_t first_tile_ = 0, end_tile_ = 0;
  std::vector<SubBlock> subs_;
  std::vector<QueryRows> active_;
};

/// Sums the blocks' gradients of a static weight in their order.
HWY_INLINE void finish_weight(const BackwardShared& shared, size_t handle, int64_t blocks, int64_t numbers, float* to) {
  if (!to) return;
  std::vector<double> sum(static_cast<size_t>(numbers), 0);
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t n = 0; n < numbers; ++n) sum[n] += shared.space.get(handle)[i * shared.weights + n];
  for (int64_t n = 0; n < numbers; ++n) to[n] = static_cast<float>(sum[n]);
}

/// Runs every (sequence, cluster, block) on the workers that `make` builds, blocks of a cluster in the order of turns.
template <class Make>
HWY_INLINE Status run_backward_tasks(const Call& call, int64_t block_rows, Make make) {
  const int64_t blocks = call.blocks(block_rows), clusters = static_cast<int64_t>(call.plan.clusters.size());
  const int64_t count = call.p.B * clusters * blocks, group = std::max(1, call.runtime.threads);
  Tasks tasks(count);
  std::vector<decltype(make())>
      workers;  // all memory before the first turn: a worker that fails later would be waited for
  for (int64_t i = 0; i < std::min<int64_t>(group, count); ++i) {
    workers.push_back(make());
    if (!workers.back()->allocate()) return Status::out_of_memory;
  }
  parallel(call.runtime, static_cast<int64_t>(workers.size()), [&](int64_t worker) {
    for (int64_t task; (task = tasks.next()) >= 0;) {
      // Threads work side by side on different clusters where there are several, so that few turns are waited for.
      const int64_t pairs = call.p.B * clusters, first = task / (group * blocks) * group,
                    wide = std::min(group, pairs - first);
      const int64_t within = task - first * blocks, block = blocks - 1 - within / wide, pair = first + within % wide;
      const Cluster& cluster = call.plan.clusters[pair % clusters];
      const int64_t units = static_cast<int64_t>(cluster.units.size());
      for (int64_t u = 0; u < units; ++u)
        workers[worker]->run({pair / clusters, block, pair % clusters, u, units, call.plan.units[cluster.units[u]]});
    }
  });
  return Status::ok;
}

/// Puts the gradients of keys in order and writes them.
HWY_INLINE void finish_keys(const Call& call, const Mixes& mixes, const BackwardShared& shared, const Gradients& to) {
  const Problem& p = call.p;
  const int64_t tiles = call.tiles(kBackwardKeys);
  parallel(call.runtime, p.B * tiles, [&](int64_t task) {
    static thread_local std::vector<float> scratch;
    const int64_t b = task / tiles, j = task % tiles, s0 = j * kBackwardKeys;
    shared.dk.finish(b, j, scratch);
    shared.dv.finish(b, j, scratch);
    const int count = static_cast<int>(std::min<int64_t>(kBackwardKeys, p.S - s0));
    if (shared.pre_keys.size)
      scatter_keys<kBackwardKeys>(mixes.pre, to.pre, b * p.S + s0, count, shared.pre_keys.at(b, j, 0));
    if (shared.post_keys.size)
      scatter_keys<kBackwardKeys>(mixes.post, to.post, b * p.S + s0, count, shared.post_keys.at(b, j, 0));
  });
}

/// Everything of a backward run but the worker: packing, turns, tasks, results.
template <class Worker>
HWY_INLINE Status run_backward(const Call& call, const Incoming& from, const Gradients& to) {
  const Mixes mixes(call);
  const int64_t rows = call.plan.backward_rows, blocks = call.blocks(rows), tiles = call.tiles(kBackwardKeys);
  PackedKeys<kBackwardKeys> keys(call, mixes, true);
  BackwardShared shared(call, mixes, to, blocks);
  if (!keys.allocate() || !shared.allocate()) return Status::out_of_memory;
  keys.pack();
  parallel(call.runtime, call.p.B * tiles, [&](int64_t task) { shared.clear(task / tiles, task % tiles); });
  const BlockTurns turns(call, rows);
  const Status status = run_backward_tasks(
      call, rows, [&] { return std::make_unique<Worker>(call, mixes, keys, shared, turns, from, to); });
  if (status != Status::ok) return status;
  finish_keys(call, mixes, shared, to);
  finish_weight(shared, shared.pre_weight, call.p.B * blocks, int64_t{mixes.pre.in} * mixes.pre.out, to.pre[kWeight]);
  finish_weight(shared, shared.post_weight, call.p.B * blocks, int64_t{mixes.post.in} * mixes.post.out,
                to.post[kWeight]);
  return Status::ok;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
