// The skeleton of decoding: few queries against long caches, which stay as they are passed: every key and value is read
// once, so nothing is packed. All heads go together; the keys are cut into parts that threads share, in two phases:
// scores and normalisers of every part, then outputs under the common normalisers, which add up in the order of parts.
#if defined(MOTET_CPU_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_DECODE_INL_H
#undef MOTET_CPU_DECODE_INL_H
#else
#define MOTET_CPU_DECODE_INL_H
#endif

#include "motet/attention/cpu/decode_rows-inl.h"
#include "motet/attention/cpu/row_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

// Keys of a part, the share of a thread. With 300 keys two threads of a Zen 4 made a token of SmolLM2 in 2 to 4 % less
// time than with parts of 512; with 1500, or parts of 128, in the same.
constexpr int64_t kPartKeys = 256;

/// One sequence of a call. Its memory serves one sequence after another.
class Decode {
 public:
  explicit Decode(const Call& call, const Output& to) : call_(call), p_(call.p), to_(to) {
    pre_ =
        make_mix(call.plan.pre, p_.pre, p_.pairs, static_cast<int>(p_.score_heads), static_cast<int>(p_.softmax_heads));
    post_ = make_mix(call.plan.post, p_.post, p_.pairs, static_cast<int>(p_.softmax_heads),
                     static_cast<int>(p_.output_heads));
    subs_count_ = (p_.T + kRows - 1) / kRows;
    tiles_ = call.tiles(kForwardKeys), parts_ = (p_.S + kPartKeys - 1) / kPartKeys;
    width_ = padded_width(p_.E), depth_ = padded_width(p_.D);
    const int64_t heads = std::max({p_.score_heads, p_.softmax_heads, p_.output_heads});
    tile_ = heads * kRows * kForwardKeys, stats_ = round_up(p_.softmax_heads * kRows, 16);
    q_ = space_.reserve(subs_count_ * p_.score_heads * kRows * depth_);
    buffer_ = space_.reserve(tiles_ * subs_count_ * tile_);
    maxima_ = space_.reserve(tiles_ * subs_count_ * stats_), sums_ = space_.reserve(tiles_ * subs_count_ * stats_);
    pre_rows_ = space_.reserve(subs_count_ * pre_.row_band), post_rows_ = space_.reserve(subs_count_ * post_.row_band);
    out_ = space_.reserve(parts_ * out_size());
    part_scratch_ = round_up(tile_ + std::max(pre_.key_numbers, post_.key_numbers) * kForwardKeys +
                                 std::max(pre_.scratch, post_.scratch) + 3 * kForwardKeys * std::max(width_, depth_),
                             64);
    scratch_ = space_.reserve(parts_ * part_scratch_);
  }
  bool allocate() { return space_.allocate(); }

  /// The sequence b; `threads` may share its parts.
  void run(int64_t b, const Runtime& runtime) {
    start(b);
    runtime.threads.run(parts_,
                        [&](int64_t part) { each_tile(part, [&](int64_t s, int64_t j) { first_pass(part, s, j); }); });
    finish_softmax();
    runtime.threads.run(parts_, [&](int64_t part) {
      each_out([&](int64_t at, int64_t numbers) { std::fill_n(out(part) + at, numbers, 0.f); });
      each_tile(part, [&](int64_t s, int64_t j) { second_pass(part, s, j); });
    });
    write_out();
  }

 private:
  int64_t out_size() const { return subs_count_ * p_.output_heads * kRows * width_; }
  float* out(int64_t part) const { return space_.get(out_) + part * out_size(); }
  float* tile(int64_t s, int64_t j) const { return space_.get(buffer_) + (j * subs_count_ + s) * tile_; }
  float* maxima(int64_t s, int64_t j) const { return space_.get(maxima_) + (j * subs_count_ + s) * stats_; }
  float* sums(int64_t s, int64_t j) const { return space_.get(sums_) + (j * subs_count_ + s) * stats_; }
  float* q(int64_t s, int64_t h) const { return space_.get(q_) + (s * p_.score_heads + h) * kRows * depth_; }
  // Scratch of a part: a tile, a key band, scratch of a mix, packed rows.
  float* other(int64_t part) const { return space_.get(scratch_) + part * part_scratch_; }
  float* band(int64_t part) const { return other(part) + tile_; }
  float* mix_scratch(int64_t part) const {
    return band(part) + std::max(pre_.key_numbers, post_.key_numbers) * kForwardKeys;
  }
  float* packed(int64_t part) const { return mix_scratch(part) + std::max(pre_.scratch, post_.scratch); }

  void start(int64_t b) {
    b_ = b;
    subs_.clear();
    for (int64_t t = 0; t < p_.T; t += kRows) {
      subs_.emplace_back(call_.sight, b, t, p_.T);
      const int64_t s = static_cast<int64_t>(subs_.size()) - 1;
      for (int64_t h = 0; h < p_.score_heads; ++h)
        gather_queries(p_.q, b, subs_.back(), h, p_.D, depth_, static_cast<float>(p_.scale), q(s, h));
      gather_rows(pre_, b, t, subs_.back().count, space_.get(pre_rows_) + s * pre_.row_band);
      gather_rows(post_, b, t, subs_.back().count, space_.get(post_rows_) + s * post_.row_band);
    }
    key_lines(pre_, first_tile(0), 1).some();
  }

  // action(place, numbers) for the rows of each head's outputs that are computed.
  template <class Action>
  void each_out(Action action) const {
    for (int64_t s = 0; s < subs_count_; ++s)
      for (int64_t o = 0; o < p_.output_heads; ++o)
        action((s * p_.output_heads + o) * kRows * width_, subs_[s].rows * width_);
  }

  template <class Action>
  void each_tile(int64_t part, Action action) {
    const int64_t end = std::min((part + 1) * kPartKeys, p_.S);
    for (int64_t j = part * kPartKeys / kForwardKeys; j * kForwardKeys < end; ++j)
      for (int64_t s = 0; s < subs_count_; ++s)
        if (!seen(s, j).empty()) action(s, j);
  }
  // Of a part, that its first queries see.
  int64_t first_tile(int64_t part) const { return std::max(part * kPartKeys, subs_[0].keys.begin) / kForwardKeys; }
  Span seen(int64_t s, int64_t j) const { return subs_[s].part(j * kForwardKeys, kForwardKeys); }
  // The keys of a part of a tile that may be read.
  Span readable(int64_t j, Span part) const {
    const Span all = call_.sight.readable(b_);
    const int64_t s0 = j * kForwardKeys;
    const Span keys{std::max(all.begin, s0 + part.begin), std::min(all.end, s0 + part.end)};
    return keys.empty() ? Span{s0, s0} : keys;
  }

  void first_pass(int64_t part, int64_t s, int64_t j) {
    const SubBlock& sub = subs_[s];
    const Span seen = this->seen(s, j);
    const int columns = static_cast<int>(seen.end - seen.begin), heads = static_cast<int>(p_.softmax_heads);
    float* const e = tile(s, j) + seen.begin;
    float* const scores = pre_.in_place ? e : other(part) + seen.begin;
    const Span keys = readable(j, seen);
    // What comes next: the second pass begins where this part does.
    const bool last = (j + 1) * kForwardKeys >= std::min((part + 1) * kPartKeys, p_.S);
    KeyLines lines =
        last ? key_lines(post_, first_tile(part), runs_of(p_.key_of)) : key_lines(pre_, j + 1, runs_of(p_.key_of));
    each_run(p_.key_of, [&](int64_t h, int64_t end) {
      lines.some();
      if (dots(sub)) return score_rows(sub, s, h, end, keys, scores + (keys.begin - j * kForwardKeys - seen.begin));
      for (bool first = true; h < end; ++h, first = false)
        score(part, sub, s, j, h, keys, seen, scores + h * kRows * kForwardKeys, first);
    });
    if (!pre_.passes()) {
      gather_keys<kForwardKeys>(pre_, b_, j * kForwardKeys, call_.sight.readable(b_), band(part));
      pre_.apply_wide(pre_, {scores, e, nullptr, space_.get(pre_rows_) + s * pre_.row_band, band(part) + seen.begin,
                             mix_scratch(part), sub.count, columns});
    }
    if (!sees_all(call_, b_, sub, j * kForwardKeys, seen))
      hide_unseen<kForwardKeys>(call_, b_, sub, j * kForwardKeys, seen, heads, e);
    if (sub.rows == kRows)
      softmax_rows<kForwardKeys>(e, heads, columns, maxima(s, j), sums(s, j));
    else
      softmax_few_rows(e, heads, sub.count, columns, maxima(s, j), sums(s, j));
  }

  static int64_t runs_of(const std::vector<int64_t>& stored) {
    int64_t runs = 0;
    each_run(stored, [&](int64_t, int64_t) { ++runs; });
    return runs;
  }

  // One or two queries take rows of the cache as they lie, where a width fills vectors; others go through panels.
  bool dots(const SubBlock& sub) const { return sub.count <= 2 && p_.D % kLanes == 0; }
  bool weighs(const SubBlock& sub) const { return sub.count <= 2 && p_.E % kLanes == 0; }

  // The key side of a mix at tile j, in as many shares as there are runs of heads.
  KeyLines key_lines(const Mix& mix, int64_t j, int64_t runs) const {
    return KeyLines(mix, b_, j * kForwardKeys, kForwardKeys, call_.sight.readable(b_), runs);
  }

  // Scores of heads [h, end), which share a stored head.
  void score_rows(const SubBlock& sub, int64_t s, int64_t h, int64_t end, Span keys, float* to) const {
    const HeadRows x{q(s, 0), kRows * depth_, depth_, to, kRows * kForwardKeys, kForwardKeys};
    each_pairs(x, h, end, sub.count, [&](const RowPair* pairs, int count) {
      with_stored_rows(p_.k, b_, p_.key_of[h], keys, p_.S, p_.D,
                       [&](const auto& rows) { dot_rows(rows, pairs, count); });
    });
  }

  // Outputs of heads [o, end), which share a stored head; u is the first key's.
  void weigh(int64_t part, const SubBlock& sub, int64_t s, int64_t o, int64_t end, Span keys, const float* u) {
    float* const to = out(part) + s * p_.output_heads * kRows * width_;
    const HeadRows x{u, kRows * kForwardKeys, kForwardKeys, to, kRows * width_, width_};
    each_pairs(x, o, end, sub.count, [&](const RowPair* pairs, int count) {
      with_stored_rows(p_.v, b_, p_.value_of[o], keys, p_.S, p_.E,
                       [&](const auto& rows) { weigh_rows(rows, pairs, count); });
    });
  }

  // Scores of one head through a transposed panel.
  void score(int64_t part, const SubBlock& sub, int64_t s, int64_t j, int64_t h, Span keys, Span seen, float* to,
             bool first) const {
    const int64_t s0 = j * kForwardKeys + seen.begin;
    float* const staging = packed(part);
    float* const panel = staging + kForwardKeys * std::max(width_, depth_);
    const Rows rows = rows_of(p_.k, b_, p_.key_of[h], keys, p_.D, staging, !first);
    for (int64_t c = 0; c < seen.end - seen.begin; c += kPanel) {
      const int64_t begin = std::clamp<int64_t>(keys.begin - s0 - c, 0, kPanel),
                    end = std::clamp<int64_t>(keys.end - s0 - c, begin, kPanel);
      if (first)
        pack_transposed({rows.data + (s0 + c + begin - keys.begin) * rows.stride, rows.stride}, static_cast<int>(begin),
                        static_cast<int>(end), p_.D, panel + c * p_.D, InOrder{kPanel});
      product_columns<kPanel, false>({q(s, h), depth_, 1, panel + c * p_.D, kPanel, to + c, kForwardKeys, p_.D},
                                     sub.rows);
    }
  }

  // softmax_rows for fewer rows than a sub-block has.
  static void softmax_few_rows(float* tile, int heads, int rows, int columns, float* maxima, float* sums) {
    const Floats d;
    for (int h = 0; h < heads; ++h)
      for (int r = 0; r < rows; ++r) {
        float* x = tile + (h * kRows + r) * kForwardKeys;
        Vec top = load(x), sum = zero();
        for (int c = kLanes; c < columns; c += kLanes) top = hn::Max(top, load(x + c));
        const Vec m = hn::Max(hn::Mul(hn::MaxOfLanes(d, top), set(kLog2E)), set(kNothing));
        for (int c = 0; c < columns; c += kLanes) {
          const Vec y = exp2(from_top(load(x + c), m));
          store(x + c, y);
          sum = hn::Add(sum, y);
        }
        maxima[h * kRows + r] = hn::GetLane(m), sums[h * kRows + r] = hn::GetLane(hn::SumOfLanes(d, sum));
      }
  }

  void finish_softmax() {
    for (int64_t s = 0; s < subs_count_; ++s) {
      stats_list_.clear();
      for (int64_t j = 0; j < tiles_; ++j)
        if (!seen(s, j).empty()) stats_list_.push_back({maxima(s, j), sums(s, j)});
      for (int64_t x = 0; x < stats_; x += kLanes) {
        float lse[kLanes];
        finish_lanes(stats_list_, x, lse);
        for (int64_t i = 0; to_.lse && i < kLanes; ++i) {
          const int64_t head = (x + i) / kRows, r = (x + i) % kRows;
          if (head < p_.softmax_heads && r < subs_[s].count)
            to_.lse[(b_ * p_.softmax_heads + head) * p_.T + s * kRows + r] = lse[i];
        }
      }
    }
  }

  void second_pass(int64_t part, int64_t s, int64_t j) {
    const SubBlock& sub = subs_[s];
    const Span seen = this->seen(s, j), keys = readable(j, seen);
    const int columns = static_cast<int>(seen.end - seen.begin);
    float* const e = tile(s, j) + seen.begin;
    float* const u = post_.in_place ? e : other(part) + seen.begin;
    if (post_.passes()) {
      scale_tile(e, maxima(s, j), sub.rows, columns);
    } else {
      gather_keys<kForwardKeys>(post_, b_, j * kForwardKeys, call_.sight.readable(b_), band(part));
      post_.apply_wide(post_, {e, u, maxima(s, j), space_.get(post_rows_) + s * post_.row_band, band(part) + seen.begin,
                               mix_scratch(part), sub.count, columns});
    }
    if (keys.empty()) return;
    const int64_t offset = keys.begin - (j * kForwardKeys + seen.begin), depth = keys.end - keys.begin;
    if (weighs(sub)) {
      KeyLines lines = key_lines(post_, j + 1, runs_of(p_.value_of));
      return each_run(p_.value_of, [&](int64_t o, int64_t end) {
        lines.some();
        weigh(part, sub, s, o, end, keys, u + offset);
      });
    }
    for (int64_t o = 0; o < p_.output_heads; ++o) {
      float* const staging = packed(part);
      const bool staged = o > 0 && p_.value_of[o] == p_.value_of[o - 1];
      Rows rows = rows_of(p_.v, b_, p_.value_of[o], keys, p_.E, staging, staged);
      if (p_.E % 16) rows = padded(rows, depth, staging + kForwardKeys * std::max(width_, depth_));
      float* const to = out(part) + (s * p_.output_heads + o) * kRows * width_;
      for (int64_t column = 0; column < width_; column += kPanel)
        product<true>({u + o * kRows * kForwardKeys + offset, kForwardKeys, 1, rows.data + column, rows.stride,
                       to + column, width_, depth},
                      sub.rows, column_panel(p_.E, column).width);
    }
  }

  // Rows of a width that is no multiple of 16, with zeros behind.
  Rows padded(const Rows& rows, int64_t count, float* to) const {
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(rows.data + i * rows.stride, p_.E, to + i * width_);
      std::fill(to + i * width_ + p_.E, to + (i + 1) * width_, 0.f);
    }
    return {to, width_};
  }

  void scale_tile(float* e, const float* factor, int rows, int columns) const {
    for (int64_t h = 0; h < p_.softmax_heads; ++h)
      for (int r = 0; r < rows; ++r) {
        const Vec f = set(factor[h * kRows + r]);
        float* x = e + (h * kRows + r) * kForwardKeys;
        for (int c = 0; c < columns; c += kLanes) store(x + c, hn::Mul(f, load(x + c)));
      }
  }

  void write_out() {
    for (int64_t part = 1; part < parts_; ++part)
      each_out([&](int64_t at, int64_t numbers) HWY_ATTR {
        for (int64_t i = at; i < at + numbers; i += kLanes)
          store(out(0) + i, hn::Add(load(out(0) + i), load(out(part) + i)));
      });
    for (int64_t s = 0; s < subs_count_; ++s)
      for (int r = 0; r < subs_[s].count; ++r)
        for (int64_t o = 0; o < p_.output_heads; ++o)
          narrow_row(out(0) + ((s * p_.output_heads + o) * kRows + r) * width_, p_.E, to_.out, p_.q.type,
                     ((b_ * p_.T + s * kRows + r) * p_.output_heads + o) * p_.E);
  }

  const Call& call_;
  const Problem& p_;
  const Output& to_;
  Mix pre_, post_;
  int64_t subs_count_, tiles_, parts_, width_, depth_, tile_, stats_, part_scratch_;
  Workspace space_;
  size_t q_, buffer_, maxima_, sums_, pre_rows_, post_rows_, out_, scratch_;
  int64_t b_ = 0;
  std::vector<SubBlock> subs_;
  std::vector<TileStats> stats_list_;
};

/// Whole sequences on different threads where there are enough of them, else the parts of one after another.
HWY_INLINE Status run_decode(const Call& call, const Output& to) {
  const int64_t workers =
      call.p.B >= call.runtime.threads.count ? std::min<int64_t>(call.runtime.threads.count, call.p.B) : 1;
  std::vector<std::unique_ptr<Decode>> all;
  for (int64_t i = 0; i < workers; ++i) {
    all.push_back(std::make_unique<Decode>(call, to));
    if (!all.back()->allocate()) return Status::out_of_memory;
  }
  Tasks tasks(call.p.B);
  const Runtime alone;
  call.runtime.threads.run(workers, [&](int64_t worker) {
    for (int64_t b; (b = tasks.next()) >= 0;) all[worker]->run(b, workers > 1 ? alone : call.runtime);
  });
  return Status::ok;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
