#include "motet/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "motet/core/error.h"
#include "motet/sampling/token_weights.h"

namespace motet {
namespace {

constexpr size_t kHeap = 1024;  // up to here a heap of the best beats a partition of all

// The best `count` stand in front, in order.
void sort_best(std::vector<Candidate>& all, size_t count) {
  if (count < all.size() && count > kHeap)
    std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(), better);
  const auto last = all.begin() + static_cast<ptrdiff_t>(std::min(count, all.size()));
  if (count > kHeap || count >= all.size())
    std::sort(all.begin(), last, better);
  else
    std::partial_sort(all.begin(), last, all.end(), better);
}

std::mt19937_64 seeded(uint64_t seed, uint64_t sample) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(sample),
                      static_cast<uint32_t>(sample >> 32)};
  return std::mt19937_64(words);
}

// What a block of logits holds.
struct Seen {
  float most = -std::numeric_limits<float>::infinity();
  bool finite = false, nan = false;
};
Seen seen(std::span<const float> logits) {
  Seen all;
  std::array<float, kLogitLanes> most;
  std::array<int32_t, kLogitLanes> finite{}, nan{};
  most.fill(all.most);
  const auto look = [&](float x, size_t lane) {
    most[lane] = x > most[lane] ? x : most[lane];
    finite[lane] |= x - x == 0, nan[lane] |= x != x;
  };
  size_t i = 0;
  for (; i + kLogitLanes <= logits.size(); i += kLogitLanes)
    for (size_t lane = 0; lane < kLogitLanes; ++lane) look(logits[i + lane], lane);
  for (; i < logits.size(); ++i) look(logits[i], 0);
  for (size_t lane = 0; lane < kLogitLanes; ++lane)
    all.most = std::max(all.most, most[lane]), all.finite |= finite[lane] != 0, all.nan |= nan[lane] != 0;
  return all;
}

[[noreturn]] void refuse_logits() { fail("generate: the model's logits are not finite"); }

// The first of the largest.
int32_t likeliest_token(std::span<const float> logits) {
  constexpr size_t kBlock = 1024;  // of which one is searched again
  Seen all;
  size_t block = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const Seen part = seen(logits.subspan(i, std::min(kBlock, logits.size() - i)));
    if (part.most > all.most) all.most = part.most, block = i;
    all.finite |= part.finite, all.nan |= part.nan;
  }
  if (all.nan || !all.finite) refuse_logits();
  return static_cast<int32_t>(std::find(logits.begin() + static_cast<ptrdiff_t>(block), logits.end(), all.most) -
                              logits.begin());
}

// What the `count` best are not below: each of as many largest maxima of groups is one token of them. `memory` is kept.
float floor_of_best(std::span<const float> logits, size_t count, std::vector<float>& memory) {
  constexpr size_t kBlock = 64 * kLogitLanes;  // whose lanes are groups: of 49,152 logits there are 768
  memory.clear();
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    std::array<float, kLogitLanes> most;
    most.fill(-std::numeric_limits<float>::infinity());
    const auto look = [&](float x, size_t lane) { most[lane] = x > most[lane] ? x : most[lane]; };
    const size_t end = std::min(first + kBlock, logits.size());
    size_t i = first;
    for (; i + kLogitLanes <= end; i += kLogitLanes)
      for (size_t lane = 0; lane < kLogitLanes; ++lane) look(logits[i + lane], lane);
    for (; i < end; ++i) look(logits[i], 0);
    memory.insert(memory.end(), most.begin(), most.end());
  }
  if (count > memory.size()) return -std::numeric_limits<float>::infinity();
  const auto last = memory.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(memory.begin(), last, memory.end(), std::greater<>());
  return *last;
}

// log of the sum of exponentials.
double log_sum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

}  // namespace

Sampler::Sampler(SamplerOptions options, uint64_t sample, std::span<const int32_t> prompt)
    : options_(std::move(options)), random_(seeded(options_.seed, sample)) {
  for (const int32_t id : prompt) drawn_.emplace(id, 0);
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  if (options_.bias.empty() && !penalises()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  apply_bias(), apply_penalties();
  return adjusted_;
}

void Sampler::apply_bias() {
  for (const auto& [id, added] : options_.bias) {
    if (static_cast<size_t>(id) >= adjusted_.size()) continue;
    float& x = adjusted_[static_cast<size_t>(id)];
    x = static_cast<float>(x + added);
  }
}

bool Sampler::penalises() const {
  return options_.repeat_penalty != 1 || options_.frequency_penalty != 0 || options_.presence_penalty != 0;
}

void Sampler::apply_penalties() {
  if (!penalises()) return;
  for (const auto& [id, times] : drawn_) {
    if (static_cast<size_t>(id) >= adjusted_.size()) continue;  // of the prompt, and never drawn
    double x = adjusted_[static_cast<size_t>(id)];
    x = x > 0 ? x / options_.repeat_penalty : x * options_.repeat_penalty;
    if (times > 0) x -= static_cast<double>(times) * options_.frequency_penalty + options_.presence_penalty;
    adjusted_[static_cast<size_t>(id)] = static_cast<float>(x);
  }
}

bool Sampler::keeps_best(size_t of) const { return options_.top_k > 0 && static_cast<size_t>(options_.top_k) <= of; }

// A logit that none of the tokens which stay is below.
double Sampler::floor(std::span<const float> logits, float most) {
  if (keeps_best(logits.size())) return floor_of_best(logits, static_cast<size_t>(options_.top_k), maxima_);
  double least = -std::numeric_limits<double>::infinity();
  // Top-p keeps none of the tokens that sum to 7/8 of what it leaves out; the rest is more than what was rounded.
  if (options_.top_p < 1) least = most + weights_.log_floor(weights_.total() * (1 - options_.top_p) * 7 / 8);
  if (options_.min_p > 0) least = std::max(least, most + std::log(options_.min_p));
  return least;
}

// The tokens at or above the floor, in their order.
void Sampler::gather(std::span<const float> logits, double floor) {
  const float least = std::nextafter(static_cast<float>(floor), -std::numeric_limits<float>::infinity());
  const auto take = [&](size_t i) {
    if (logits[i] >= least) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  };
  candidates_.clear();
  size_t i = 0;
  for (; i + kLogitLanes <= logits.size(); i += kLogitLanes) {
    uint32_t any = 0;  // of most groups none is taken
    for (size_t lane = 0; lane < kLogitLanes; ++lane) any |= static_cast<uint32_t>(logits[i + lane] >= least);
    for (size_t lane = 0; any != 0 && lane < kLogitLanes; ++lane) take(i + lane);
  }
  for (; i < logits.size(); ++i) take(i);
}

void Sampler::keep_top_k() {
  if (!keeps_best(candidates_.size())) return;
  sort_best(candidates_, static_cast<size_t>(options_.top_k));
  candidates_.resize(static_cast<size_t>(options_.top_k));
}

// The best whose predecessors sum to less than top_p of the total, which is that of the candidates where it is 0: the
// token that reaches it stays.
void Sampler::keep_top_p(double total) {
  if (options_.top_p >= 1) return;
  std::sort(candidates_.begin(), candidates_.end(), better);
  const double most = candidates_[0].logit;
  if (total == 0)
    for (const Candidate& c : candidates_) total += std::exp(c.logit - most);
  double before = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i > 0 && before >= options_.top_p * total) return candidates_.resize(i);
    before += std::exp(candidates_[i].logit - most);
  }
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const double most = std::min_element(candidates_.begin(), candidates_.end(), better)->logit;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < most + std::log(options_.min_p); });
}

// The tokens whose surprise is nearest to the entropy, until they sum to typical_p.
void Sampler::keep_typical() {
  if (options_.typical_p >= 1) return;
  std::sort(candidates_.begin(), candidates_.end(), better);
  double total = 0, entropy = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - candidates_[0].logit);
  const double log_total = candidates_[0].logit + std::log(total);
  const auto surprise = [&](const Candidate& c) { return log_total - c.logit; };
  for (const Candidate& c : candidates_)
    if (std::isfinite(c.logit)) entropy += std::exp(-surprise(c)) * surprise(c);
  std::stable_sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    return std::abs(surprise(a) - entropy) < std::abs(surprise(b) - entropy);
  });
  double before = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i > 0 && before >= options_.typical_p) return candidates_.resize(i);
    before += std::exp(-surprise(candidates_[i]));
  }
}

double Sampler::uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

int32_t Sampler::draw() {
  const double most = std::min_element(candidates_.begin(), candidates_.end(), better)->logit;
  double total = 0;
  for (Candidate& c : candidates_) total += c.logit = std::exp((c.logit - most) / options_.temperature);
  double left = total * uniform();
  int32_t last = 0;
  for (const Candidate& c : candidates_) {
    if (c.logit == 0) continue;
    last = c.id, left -= c.logit;
    if (left < 0) break;
  }
  return last;
}

int32_t Sampler::choose(std::span<const float> unadjusted) {
  const std::span<const float> logits = adjusted(unadjusted);
  const int32_t best = likeliest_token(logits);
  const float most = logits[static_cast<size_t>(best)];
  if (options_.temperature == 0 || std::isinf(most)) return best;
  const bool of_best = keeps_best(logits.size()), of_nucleus = !of_best && options_.top_p < 1;
  if (!of_best && !of_nucleus && options_.min_p <= 0 && options_.typical_p >= 1) {
    weights_.set(logits, most, options_.temperature);
    return weights_.at(uniform());
  }
  if (of_nucleus) weights_.set(logits, most, 1);
  gather(logits, floor(logits, most));
  return filtered(of_nucleus ? weights_.total() : 0);
}

int32_t Sampler::filtered(double total) {
  if (options_.temperature == 0) return std::min_element(candidates_.begin(), candidates_.end(), better)->id;
  keep_top_k(), keep_top_p(total), keep_min_p(), keep_typical();
  return draw();
}

int32_t Sampler::next(std::span<const float> logits) {
  const int32_t id = choose(logits);
  ++drawn_[id];
  return id;
}

int64_t Sampler::wanted() const {
  if (penalises() || !options_.bias.empty()) return 0;
  return options_.temperature == 0 ? 1 : options_.top_k;
}

int32_t Sampler::next(std::span<const Candidate> likeliest) {
  candidates_.assign(likeliest.begin(), likeliest.end());
  const int32_t id = filtered();
  ++drawn_[id];
  return id;
}

bool all_finite(std::span<const float> logits) {
  std::array<float, kLogitLanes> sums{};  // of nothing, or NaN
  size_t i = 0;
  for (; i + kLogitLanes <= logits.size(); i += kLogitLanes)
    for (size_t lane = 0; lane < kLogitLanes; ++lane) sums[lane] += logits[i + lane] - logits[i + lane];
  for (; i < logits.size(); ++i) sums[0] += logits[i] - logits[i];
  return std::ranges::all_of(sums, [](float sum) { return sum == 0; });
}

double log_probability(std::span<const float> logits, int32_t id) {
  return logits[static_cast<size_t>(id)] - log_sum(logits);
}

std::vector<ScoredToken> likeliest(std::span<const float> logits, int64_t count, int64_t known) {
  std::vector<Candidate> all(std::min(logits.size(), static_cast<size_t>(known)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = {logits[i], static_cast<int32_t>(i)};
  const size_t wanted = std::min(static_cast<size_t>(count), all.size());
  sort_best(all, wanted);
  const double norm = log_sum(logits);
  std::vector<ScoredToken> best;
  for (size_t i = 0; i < wanted; ++i) best.push_back({all[i].id, all[i].logit - norm});
  return best;
}

}  // namespace motet
