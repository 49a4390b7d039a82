#include "motet/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "motet/core/error.h"

namespace motet {
namespace {

constexpr size_t kMostSources = 1000;

// Whole numbers that sum to the period, as close to the weights as they can be.
std::vector<uint64_t> rounded(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> counts;
  std::vector<double> rests;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(Mixture::kPeriod);
    counts.push_back(static_cast<uint64_t>(exact));
    rests.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return rests[a] > rests[b]; });
  const uint64_t missing = Mixture::kPeriod - std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  for (uint64_t i = 0; i < missing; ++i) ++counts[order[i % order.size()]];
  return counts;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMostSources)
    fail_usage("data.mixture: has ", weights.size(), " sources, want 1 to ", kMostSources);
  for (const double weight : weights)
    if (!(weight > 0) || !std::isfinite(weight))
      fail_usage("data.mixture: the weight ", weight, " is not a number above 0");
  per_period_ = rounded(weights);
  for (size_t i = 0; i < weights.size(); ++i)
    if (per_period_[i] == 0)
      fail_usage("data.mixture: the weight ", weights[i], " is less than one row in ", kPeriod, " of all weights");
  std::vector<uint64_t> given(weights.size());
  for (uint64_t row = 0; row < kPeriod; ++row) {
    // Of those that have less than their part of row + 1, the one that reaches a whole row more first.
    size_t next = weights.size();
    for (size_t i = 0; i < weights.size(); ++i) {
      if (given[i] * kPeriod >= per_period_[i] * (row + 1)) continue;
      if (next == weights.size() || (given[i] + 1) * per_period_[next] < (given[next] + 1) * per_period_[i]) next = i;
    }
    turns_.push_back({next, given[next]++});
  }
}

Mixture::Turn Mixture::turn(uint64_t row) const {
  const Turn in_period = turns_[row % kPeriod];
  return {in_period.source, row / kPeriod * per_period_[in_period.source] + in_period.row};
}

std::vector<uint64_t> Mixture::counts(uint64_t rows) const {
  std::vector<uint64_t> all;
  for (const uint64_t own : per_period_) all.push_back(rows / kPeriod * own);
  for (uint64_t row = 0; row < rows % kPeriod; ++row) ++all[turns_[row].source];
  return all;
}

}  // namespace motet
