#include "motet/attention/cpu/plan.h"

#include <algorithm>
#include <numeric>

namespace motet::cpu {
namespace {

// Queries of a block. 64 keep K and V streaming from L3 once per 64 queries; fewer when one thread's row buffers would
// pass the budget (in a prototype 16 instead of 64 cost 18 % at T = 2048). Measure again with `motet bench attention`.
constexpr int64_t kMixedRows = 64, kOnlineRows = 128;
constexpr int64_t kRowBufferBytes = int64_t{192} << 20;
constexpr int64_t kDecodeRows = 16;  // with at most this many queries nothing is packed

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

}  // namespace

MixKind pre_kind(const Problem& p) { return kind_of(p.pre, p.score_heads, p.softmax_heads); }

MixKind post_kind(const Problem& p) {
  return p.pairs.lambda ? MixKind::pairs : kind_of(p.post, p.softmax_heads, p.output_heads);
}

Plan make_plan(const Problem& p) {
  Plan plan;
  plan.pre = pre_kind(p), plan.post = post_kind(p);
  plan.units = make_units(p, plan.pre, plan.post);
  plan.clusters = make_clusters(p, plan.units);
  const bool mixed = plan.pre != MixKind::none || plan.post != MixKind::none;
  plan.forward = p.T <= kDecodeRows && p.S > 2 * p.T ? Skeleton::decode
                 : mixed                             ? Skeleton::row_buffer
                                                     : Skeleton::online;
  const Unit widest = plan.units.front();
  const int64_t heads = std::max({widest.scores, widest.softmax, widest.outputs});
  const int64_t enough = round_up(std::max<int64_t>(p.T, 1), kRows);
  const int64_t wanted = std::min(enough, mixed ? kMixedRows : kOnlineRows);
  plan.forward_rows = mixed ? rows_within_budget(p, heads, wanted) : wanted;
  plan.backward_rows = mixed ? rows_within_budget(p, 3 * heads, wanted) : wanted;
  return plan;
}

}  // namespace motet::cpu
