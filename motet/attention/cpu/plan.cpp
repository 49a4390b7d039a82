#include "motet/attention/cpu/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace motet::cpu {
namespace {

// Queries of a block without row buffers. On Zen 5 64, 256 and 512 take the same time within 4 %.
constexpr int64_t kOnlineRows = 128;
// The most queries of a block with row buffers, and where enough blocks are left for as many threads and L2 has twice
// the usual size or, forward, keeps nothing. On Zen 5 (1 MiB) 96 and 128 rows of 16 heads won at most 3 % and lost up
// to 6 %.
constexpr int64_t kMixedRows = 64, kMixedRowsWhereMany = 128, kEnoughBlocks = 32;
// Few queries, as those of a piece of a prompt, make as many blocks forward, which threads can share, but none of fewer
// than 16. On Zen 4 a prompt of 4,096 tokens in pieces of 64 took two threads 0.71 of the time that it took in blocks
// of 64 (DCMHA, 9 heads on 3), and one thread 1.03 of it.
constexpr int64_t kFewestBlocks = 8;
constexpr int64_t kUsualL2 = int64_t{1} << 20;
// The most sub-blocks of a group, and the part of L2 that what they make of a tile may take. Of 16 heads all of them
// may: on 1 MiB a quarter holds 8 tiles forward, 4 times 4 backward, on 512 KiB a half.
constexpr int64_t kForwardGroup = 8, kBackwardGroup = 4, kGroupsInL2 = 4, kGroupsInSmallL2 = 2;
// One thread's row buffers at most; beyond that blocks have fewer queries, whatever it costs.
constexpr int64_t kRowBufferBytes = int64_t{192} << 20;
constexpr int64_t kDecodeRows = 16;  // with at most this many queries nothing is packed

int64_t l2_of(const CacheSizes& caches) { return caches.l2 > 0 ? caches.l2 : kUsualL2; }
bool has_small_l2(const CacheSizes& caches) { return l2_of(caches) < kUsualL2; }

MixKind kind_of(const HeadMix& mix, int64_t heads_in, int64_t heads_out) {
  if (!mix.any_part()) return MixKind::none;
  const bool dense = mix.has(kWeight) || mix.has(kQueryFull) || mix.has(kKeyFull) || heads_in != heads_out ||
                     mix.query_rank > 2 || mix.key_rank > 2;
  return dense ? MixKind::dense : MixKind::factored;
}

std::vector<Unit> make_units(const Problem& p, MixKind pre, MixKind post) {
  const bool all = pre != MixKind::none || post == MixKind::factored || post == MixKind::dense;
  if (all) return {{0, p.score_heads, 0, p.softmax_heads, 0, p.output_heads}};
  const int64_t heads = post == MixKind::pairs ? 2 : 1;
  std::vector<Unit> units;
  for (int64_t o = 0; o < p.output_heads; ++o) units.push_back({o * heads, heads, o * heads, heads, o, 1});
  return units;
}

std::vector<Cluster> make_clusters(const Problem& p, const std::vector<Unit>& units) {
  std::vector<int> leader(units.size() + p.key_heads + p.value_heads);  // units, then key heads, then value heads
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](int x) {
    while (leader[x] != x) x = leader[x] = leader[leader[x]];
    return x;
  };
  const int keys = static_cast<int>(units.size()), values = keys + static_cast<int>(p.key_heads);
  for (int u = 0; u < keys; ++u) {
    for (int64_t h = 0; h < units[u].scores; ++h)
      leader[find(u)] = find(keys + static_cast<int>(p.key_of[units[u].score0 + h]));
    for (int64_t o = 0; o < units[u].outputs; ++o)
      leader[find(u)] = find(values + static_cast<int>(p.value_of[units[u].output0 + o]));
  }
  std::vector<int> place(leader.size(), -1);
  std::vector<Cluster> clusters;
  for (int x = 0; x < static_cast<int>(leader.size()); ++x) {
    int& at = place[find(x)];
    if (at < 0) at = static_cast<int>(clusters.size()), clusters.emplace_back();
    if (x < keys)
      clusters[at].units.push_back(x);
    else if (x < values)
      clusters[at].keys.push_back(x - keys);
    else
      clusters[at].values.push_back(x - values);
  }
  return clusters;
}

// The most queries, in steps of kRows, whose row buffers of `buffers` tiles over all keys fit the budget.
int64_t rows_within_budget(const Problem& p, int64_t buffers, int64_t wanted) {
  const int64_t span = p.window > 0 ? std::min(p.S, p.window + wanted) : p.S;
  const int64_t row = std::max<int64_t>(buffers * span * static_cast<int64_t>(sizeof(float)), 1);
  return std::clamp(kRowBufferBytes / row / kRows * kRows, int64_t{kRows}, wanted);
}

// What a pass brings from beyond L2, in bytes for all heads of a unit. Of a block of R queries each key costs `keys`,
// whatever R is; each pair of a query and a key costs `buffer` where the row buffers do not stay in L2, and `own` where
// what belongs to the queries (q and outputs, or dout and dq) does not.
struct Traffic {
  double keys, buffer, own;
  double buffer_size, own_size;  // bytes that stay: of a query and key, of a query
};

// A line that is written is fetched and written back: two for each number, beside the one that reads it.
Traffic forward_traffic(const Unit& u, double key_numbers, double value_numbers, const Problem& p) {
  const double q = static_cast<double>(u.scores * p.D), out = static_cast<double>(u.outputs * p.E);
  const double heads = static_cast<double>(std::max({u.scores, u.softmax, u.outputs}));
  return {4 * (key_numbers + value_numbers), 12 * heads, (4 * q + 8 * out) / kForwardKeys, 4 * heads, 4 * (q + out)};
}

// K comes in two orders and dK is added to, V in one and dV too; scores, P and dP are written and read, scores a second
// time by their gradients.
Traffic backward_traffic(const Unit& u, double key_numbers, double value_numbers, const Problem& p) {
  const double q = static_cast<double>(u.scores * p.D), out = static_cast<double>(u.outputs * p.E);
  const double heads = static_cast<double>(u.scores + u.softmax + std::max(u.scores, u.softmax));
  return {16 * key_numbers + 12 * value_numbers, 12 * heads + 4 * static_cast<double>(u.scores),
          (16 * q + 8 * out) / kBackwardKeys, 4 * heads, 4 * (q + out)};
}

// The queries of a block that bring the least from beyond L2, of two the more. Row buffers may take three quarters of
// it, what belongs to the queries a half: the rest is for the tiles of keys that stream through.
int64_t rows_of_least_traffic(const Traffic& t, double keys_seen, int64_t l2, int64_t most) {
  int64_t best = most;
  double least = INFINITY;
  for (int64_t rows = most; rows >= std::min<int64_t>(most, 2 * kRows); rows -= kRows) {
    const double count = static_cast<double>(rows), size = static_cast<double>(l2);
    const double bytes = t.keys / count + (count * keys_seen * t.buffer_size > 0.75 * size ? t.buffer : 0) +
                         (count * t.own_size > 0.5 * size ? t.own : 0);
    if (bytes < least) least = bytes, best = rows;
  }
  return best;
}

// Keys that a query sees on average.
double mean_keys(const Problem& p) {
  const double all = static_cast<double>(p.S), half = static_cast<double>(std::min(p.T, p.S)) / 2;
  const double seen = p.causal ? all - half : all;
  return p.window > 0 ? std::min(seen, static_cast<double>(p.window)) : seen;
}

// Queries of a block with row buffers, forward and backward.
std::pair<int64_t, int64_t> mixed_rows(const Problem& p, const Plan& plan, const CacheSizes& caches) {
  const Unit& unit = plan.units.front();
  const int64_t l2 = l2_of(caches);
  const double keys = static_cast<double>(std::min(unit.scores, p.key_heads) * p.D),
               values = static_cast<double>(std::min(unit.outputs, p.value_heads) * p.E);
  // A small L2, half of which does not hold keys and values of a tile, keeps nothing of them from one to the next.
  const bool streams =
      has_small_l2(caches) && 2.0 * sizeof(float) * kForwardKeys * (keys + values) > static_cast<double>(l2);
  const int64_t units = static_cast<int64_t>(plan.units.size());
  const int64_t blocks = p.B * units * (p.T / kMixedRowsWhereMany);
  const bool enough = blocks >= kEnoughBlocks, large = l2 >= 2 * kUsualL2;
  const int64_t heads = std::max({unit.scores, unit.softmax, unit.outputs});
  const int64_t queries = round_up(std::max<int64_t>(p.T, 1), kRows);
  const auto rows = [&](const Traffic& traffic, int64_t buffers, bool many, int64_t fewest = 1) {
    int64_t most = std::min(queries, many ? kMixedRowsWhereMany : kMixedRows);
    while (most > 2 * kRows && p.B * units * ((queries + most - 1) / most) < fewest) most -= kRows;
    return rows_within_budget(p, buffers, streams ? most : rows_of_least_traffic(traffic, mean_keys(p), l2, most));
  };
  return {rows(forward_traffic(unit, keys, values, p), heads, enough && (large || streams), kFewestBlocks),
          rows(backward_traffic(unit, keys, values, p), 3 * odd_heads(heads), enough && large)};
}

// Sub-blocks of a group that make `numbers` of each query and head: at most `most`, those of a block of `rows`.
int64_t group_size(const Plan& plan, const CacheSizes& caches, int64_t rows, int64_t numbers, int64_t most) {
  const Unit& unit = plan.units.front();
  const int64_t heads = std::max({unit.scores, unit.softmax, unit.outputs});
  const int64_t bytes = heads * kRows * numbers * static_cast<int64_t>(sizeof(float));
  const int64_t space = l2_of(caches) / (has_small_l2(caches) ? kGroupsInSmallL2 : kGroupsInL2);
  return std::clamp<int64_t>(space / bytes, 1, std::min(most, rows / kRows));
}

}  // namespace

MixKind pre_kind(const Problem& p) { return kind_of(p.pre, p.score_heads, p.softmax_heads); }

MixKind post_kind(const Problem& p) {
  return p.pairs.lambda ? MixKind::pairs : kind_of(p.post, p.softmax_heads, p.output_heads);
}

bool decodes(const Problem& p) { return p.T <= kDecodeRows && p.S > 2 * p.T; }

bool takes_groups(const CacheSizes& caches) { return caches.slow_l2 || has_small_l2(caches); }

Plan make_plan(const Problem& p, const CacheSizes& caches) {
  Plan plan;
  plan.pre = pre_kind(p), plan.post = post_kind(p);
  plan.units = make_units(p, plan.pre, plan.post);
  plan.clusters = make_clusters(p, plan.units);
  plan.forward_rows = plan.backward_rows = std::min(round_up(std::max<int64_t>(p.T, 1), kRows), kOnlineRows);
  if (plan.mixed()) std::tie(plan.forward_rows, plan.backward_rows) = mixed_rows(p, plan, caches);
  if (plan.mixed() && takes_groups(caches)) {
    const int64_t buffers = plan.pre == MixKind::dense || plan.post == MixKind::dense ? 2 : 1;
    plan.forward_group = group_size(plan, caches, plan.forward_rows, buffers * kForwardKeys, kForwardGroup);
    plan.backward_group = group_size(plan, caches, plan.backward_rows, 4 * kBackwardKeys, kBackwardGroup);
  }
  return plan;
}

}  // namespace motet::cpu
