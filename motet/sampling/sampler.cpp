#include "motet/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "motet/core/error.h"

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

constexpr size_t kLanes = 16;  // in which logits are looked at: a compiler makes vectors of them

// What a block of logits holds.
struct Seen {
  float most = -std::numeric_limits<float>::infinity();
  bool finite = false, nan = false;
};
Seen seen(std::span<const float> logits) {
  Seen all;
  std::array<float, kLanes> most;
  std::array<int32_t, kLanes> finite{}, nan{};
  most.fill(all.most);
  const auto look = [&](float x, size_t lane) {
    most[lane] = x > most[lane] ? x : most[lane];
    finite[lane] |= x - x == 0, nan[lane] |= x != x;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) look(logits[i + lane], lane);
  for (; i < logits.size(); ++i) look(logits[i], 0);
  for (size_t lane = 0; lane < kLanes; ++lane)
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

void Sampler::gather(std::span<const float> logits) {
  candidates_.resize(logits.size());
  bool any = false, all = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {logits[i], static_cast<int32_t>(i)};
    any = any || std::isfinite(logits[i]), all = all && !std::isnan(logits[i]);
  }
  if (!any || !all) refuse_logits();
}

// Candidate i is token i still, here and in the next.
void Sampler::apply_bias() {
  for (const auto& [id, added] : options_.bias)
    if (static_cast<size_t>(id) < candidates_.size()) candidates_[static_cast<size_t>(id)].logit += added;
}

bool Sampler::penalises() const {
  return options_.repeat_penalty != 1 || options_.frequency_penalty != 0 || options_.presence_penalty != 0;
}

void Sampler::apply_penalties() {
  if (!penalises()) return;
  for (const auto& [id, times] : drawn_) {
    if (static_cast<size_t>(id) >= candidates_.size()) continue;  // of the prompt, and never drawn
    double& x = candidates_[static_cast<size_t>(id)].logit;
    x = x > 0 ? x / options_.repeat_penalty : x * options_.repeat_penalty;
    if (times > 0) x -= static_cast<double>(times) * options_.frequency_penalty + options_.presence_penalty;
  }
}

void Sampler::keep_top_k() {
  if (options_.top_k <= 0 || static_cast<size_t>(options_.top_k) >= candidates_.size()) return;
  sort_best(candidates_, static_cast<size_t>(options_.top_k));
  candidates_.resize(static_cast<size_t>(options_.top_k));
}

// The best whose predecessors sum to less than top_p: the token that reaches it stays.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  const double most = std::min_element(candidates_.begin(), candidates_.end(), better)->logit;
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - most);
  for (size_t sorted = 64; true; sorted *= 8) {  // mostly a few are enough
    sort_best(candidates_, sorted);
    double before = 0;
    for (size_t i = 0; i < std::min(sorted, candidates_.size()); ++i) {
      if (i > 0 && before >= options_.top_p * total) return candidates_.resize(i);
      before += std::exp(candidates_[i].logit - most);
    }
    if (sorted >= candidates_.size()) return;
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

int32_t Sampler::draw() {
  const double most = std::min_element(candidates_.begin(), candidates_.end(), better)->logit;
  double total = 0;
  for (Candidate& c : candidates_) total += c.logit = std::exp((c.logit - most) / options_.temperature);
  double left = total * static_cast<double>(random_() >> 11) * 0x1p-53;
  int32_t last = 0;
  for (const Candidate& c : candidates_) {
    if (c.logit == 0) continue;
    last = c.id, left -= c.logit;
    if (left < 0) break;
  }
  return last;
}

int32_t Sampler::choose(std::span<const float> logits) {
  if (options_.temperature == 0 && options_.bias.empty() && !penalises()) return likeliest_token(logits);
  gather(logits);
  apply_bias();
  apply_penalties();
  return filtered();
}

int32_t Sampler::filtered() {
  if (options_.temperature == 0) return std::min_element(candidates_.begin(), candidates_.end(), better)->id;
  keep_top_k(), keep_top_p(), keep_min_p(), keep_typical();
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
  std::array<float, kLanes> sums{};  // of nothing, or NaN
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += logits[i + lane] - logits[i + lane];
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
