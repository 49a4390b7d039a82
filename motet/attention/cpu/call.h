#pragma once
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "motet/attention/cpu/plan.h"
#include "motet/attention/cpu/sight.h"
#include "motet/core/instructions.h"

namespace motet::cpu {

/// What multiplies: float32 numbers, pairs of bfloat16 in vectors, or tiles.
enum class Multiplier : uint8_t { floats, pairs, tiles, emulated_tiles };

/// One call as the skeletons see it.
struct Call {
  const Problem& p;
  const Runtime& runtime;
  Multiplier unit;
  Plan plan;
  Sight sight;

  Call(const Problem& problem, const Runtime& run, Multiplier multiplier)
      : Call(problem, run, multiplier, make_plan(problem, run.caches)) {}
  Call(const Problem& problem, const Runtime& run, Multiplier multiplier, Plan own)
      : p(problem), runtime(run), unit(multiplier), plan(std::move(own)), sight(problem) {}
  int64_t blocks(int64_t rows) const { return (p.T + rows - 1) / rows; }
  int64_t tiles(int64_t keys) const { return (p.S + keys - 1) / keys; }
};

/// Hands out tasks 0..n-1 in order to workers; each worker has scratch of its own and asks for the next task.
class Tasks {
 public:
  explicit Tasks(int64_t n) : n_(n) {}
  /// The next task, or -1.
  int64_t next() {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    return task < n_ ? task : -1;
  }

 private:
  const int64_t n_;
  std::atomic<int64_t> next_{0};
};

/// Lets work on each of several places happen in a fixed order: turn `i` of a place waits until turn i - 1 is done.
/// Without deadlock as long as whoever holds an earlier turn never waits for a later one: tasks are handed out in
/// order.
class Turns {
 public:
  explicit Turns(int64_t places) : done_(places ? new std::atomic<int64_t>[places]() : nullptr) {}
  void wait(int64_t place, int64_t turn) const {
    for (int spins = 0; done_[place].load(std::memory_order_acquire) != turn; ++spins)
      if (spins > 2000)
        std::this_thread::yield();
      else
        wait_a_little();
  }
  void finish(int64_t place, int64_t turn) { done_[place].store(turn + 1, std::memory_order_release); }

 private:
  std::unique_ptr<std::atomic<int64_t>[]> done_;
};

/// The queries of a sub-block: up to 8 rows and what they see.
struct SubBlock {
  int64_t t0 = 0;
  int count = 0, rows = 0;  // real rows; rows computed (even)
  Span row[kRows];          // rows beyond the last real one see what it sees
  Span keys;                // what some row sees
  Span common;              // what every row sees, holes aside

  SubBlock() = default;
  SubBlock(const Sight& sight, int64_t b, int64_t first, int64_t end)
      : t0(first), count(static_cast<int>(std::min<int64_t>(kRows, end - first))) {
    rows = (count + 1) / 2 * 2;
    keys = {INT64_MAX, 0};
    common = {0, INT64_MAX};
    for (int r = 0; r < kRows; ++r) {
      row[r] = r < count ? sight.keys(b, t0 + r) : row[count - 1];
      if (row[r].empty())
        row[r] = {};
      else
        keys = {std::min(keys.begin, row[r].begin), std::max(keys.end, row[r].end)};
      common = {std::max(common.begin, row[r].begin), std::min(common.end, row[r].end)};
    }
    if (keys.empty()) keys = {};
  }

  /// The part of the tile [s0, s0 + width) that some row sees, widened to whole panels, relative to s0.
  Span part(int64_t s0, int64_t width) const {
    const int64_t begin = std::max<int64_t>(keys.begin - s0, 0), end = std::min(keys.end - s0, width);
    if (begin >= end) return {};
    return {begin / kPanel * kPanel, round_up(end, kPanel)};
  }
};

/// The smallest span that holds both.
inline Span joined(const Span& a, const Span& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

/// The sub-blocks of queries [first, end) of a sequence; returns what some of them see.
inline Span make_subs(const Sight& sight, int64_t b, int64_t first, int64_t end, std::vector<SubBlock>& subs) {
  subs.clear();
  Span seen;
  for (int64_t t = first; t < end; t += kRows) seen = joined(seen, subs.emplace_back(sight, b, t, end).keys);
  return seen;
}

}  // namespace motet::cpu
