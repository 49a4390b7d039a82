#include "motet/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "motet/core/error.h"

namespace motet {
namespace {

TEST(Sampler, FiltersLeaveOnlyLikelyTokens) {
  const std::vector<float> logits{1, 3, 2.9f, -1};
  const auto seen = [&](SamplerOptions options) {
    options.temperature = 5;
    Sampler sampler(options);
    std::set<int32_t> ids;
    for (int i = 0; i < 300; ++i) ids.insert(sampler.next(logits));
    return ids;
  };
  EXPECT_EQ(seen({.top_k = 0, .top_p = 1}), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen({.top_k = 1, .top_p = 1}), (std::set<int32_t>{1}));
  EXPECT_EQ(seen({.top_k = 0, .top_p = 0.6}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(seen({.top_k = 0, .top_p = 1, .min_p = 0.5}), (std::set<int32_t>{1, 2}));
}

TEST(Sampler, RepeatPenaltyLowersPositiveAndNegativeLogitsOfPromptAndText) {
  const auto first = [](std::vector<float> logits, std::vector<int32_t> prompt) {
    return Sampler({.temperature = 0, .repeat_penalty = 2}, 0, prompt).next(logits);
  };
  EXPECT_EQ(first({2, 3}, {}), 1);
  EXPECT_EQ(first({2, 3}, {1}), 0);  // 2 against 3 / 2
  EXPECT_EQ(first({-1.5f, -1}, {}), 1);
  EXPECT_EQ(first({-1.5f, -1}, {1}), 0);      // -1.5 against -1 * 2
  EXPECT_EQ(first({2, 3}, {1, 1, 1, 0}), 1);  // once, however often a token was there
  Sampler drawing({.temperature = 0, .repeat_penalty = 2});
  EXPECT_EQ(drawing.next(std::vector<float>{2, 3}), 1);
  EXPECT_EQ(drawing.next(std::vector<float>{2, 3}), 0);
}

TEST(Sampler, FrequencyAndPresencePenaltiesCountDrawnTokensAlone) {
  const float none = -INFINITY;
  const auto best = [&](SamplerOptions options) {
    options.temperature = 0;
    Sampler sampler(options, 0, std::vector<int32_t>{2, 2, 2, 2});
    for (const int32_t drawn : {0, 0, 1}) {
      std::vector<float> only(4, none);
      only[static_cast<size_t>(drawn)] = 1;
      EXPECT_EQ(sampler.next(only), drawn);
    }
    return sampler.next(std::vector<float>{2, 1.6f, 1, 0.5f});
  };
  EXPECT_EQ(best({}), 0);
  EXPECT_EQ(best({.frequency_penalty = 0.5}), 1);   // 1.0, 1.1
  EXPECT_EQ(best({.presence_penalty = 0.5}), 0);    // 1.5, 1.1
  EXPECT_EQ(best({.presence_penalty = 1.5}), 2);    // 0.5, 0.1, and the prompt's token as it is
  EXPECT_EQ(best({.frequency_penalty = 0.7}), 2);   // 0.6, 0.9
  EXPECT_EQ(best({.frequency_penalty = -1.0}), 0);  // 4.0, 2.6
}

TEST(Sampler, TypicalLeavesOutTheObviousAndTheFar) {
  // Surprises 0.69, 1.39, 2.08, 2.08; entropy 1.21: the second token is the most typical one.
  const std::vector<float> logits{std::log(.5f), std::log(.25f), std::log(.125f), std::log(.125f)};
  std::set<int32_t> seen;
  Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1, .typical_p = 0.2});
  for (int i = 0; i < 200; ++i) seen.insert(sampler.next(logits));
  EXPECT_EQ(seen, std::set<int32_t>{1});
}

TEST(Sampler, NonFiniteLogitsAreRefused) {
  Sampler sampler({});
  EXPECT_THROW(sampler.next(std::vector<float>{NAN, 1}), Error);
  EXPECT_THROW(sampler.next(std::vector<float>{-INFINITY, -INFINITY}), Error);
  EXPECT_EQ(Sampler({.temperature = 0}).next(std::vector<float>{-INFINITY, 1}), 1);
}

// What each filter is said to do, one after the other on lists of tokens, best first.
class Definition {
 public:
  explicit Definition(const std::vector<float>& logits) {
    for (size_t i = 0; i < logits.size(); ++i) kept_.push_back({static_cast<double>(logits[i]), i});
  }

  void penalise(const SamplerOptions& o, const std::set<size_t>& prompt, const std::map<size_t, int>& drawn) {
    for (auto& [x, id] : kept_) {
      const bool known = prompt.contains(id) || drawn.contains(id);
      if (known) x = x > 0 ? x / o.repeat_penalty : x * o.repeat_penalty;
      if (drawn.contains(id)) x -= drawn.at(id) * o.frequency_penalty + o.presence_penalty;
    }
  }

  std::map<size_t, double> filtered(const SamplerOptions& o) {
    std::stable_sort(kept_.begin(), kept_.end(), [](auto& a, auto& b) { return a.first > b.first; });
    if (o.top_k > 0) kept_.resize(std::min(kept_.size(), static_cast<size_t>(o.top_k)));
    std::vector<double> p = probabilities(1);
    double sum = 0;
    size_t count = 0;
    while (count < p.size() && sum < o.top_p) sum += p[count++];
    kept_.resize(o.top_p >= 1 ? kept_.size() : count);
    p = probabilities(1);
    std::vector<std::pair<double, size_t>> likely;
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] >= o.min_p * p[0]) likely.push_back(kept_[i]);
    kept_ = likely;
    keep_typical(o.typical_p);
    p = probabilities(o.temperature);
    std::map<size_t, double> out;
    for (size_t i = 0; i < p.size(); ++i) out[kept_[i].second] = p[i];
    return out;
  }

 private:
  std::vector<double> probabilities(double temperature) const {
    std::vector<double> p;
    double sum = 0;
    for (const auto& [x, id] : kept_) sum += std::exp(x / temperature);
    for (const auto& [x, id] : kept_) p.push_back(std::exp(x / temperature) / sum);
    return p;
  }

  void keep_typical(double typical_p) {
    if (typical_p >= 1) return;
    const std::vector<double> p = probabilities(1);
    double entropy = 0;
    for (const double x : p) entropy -= x * std::log(x);
    std::vector<size_t> order(p.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto far = [&](size_t i) { return std::abs(-std::log(p[i]) - entropy); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return far(a) < far(b); });
    std::vector<std::pair<double, size_t>> typical;
    double sum = 0;
    for (size_t i = 0; i < order.size() && sum < typical_p; sum += p[order[i++]]) typical.push_back(kept_[order[i]]);
    kept_ = typical;
  }

  std::vector<std::pair<double, size_t>> kept_;
};

// Any options: how often each token is drawn is what the definitions say.
TEST(Sampler, FrequenciesAreThoseOfTheDefinition) {
  constexpr int kDraws = 3000;
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 1.5);
  const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
  for (int round = 0; round < 80; ++round) {
    std::vector<float> logits(12);
    for (float& x : logits) x = normal(random);
    const SamplerOptions options{.temperature = one_of({0.5, 1, 2}),
                                 .top_k = static_cast<int64_t>(one_of({0, 0, 3, 7})),
                                 .top_p = one_of({1, 1, 0.5, 0.8}),
                                 .min_p = one_of({0, 0, 0.1, 0.4}),
                                 .typical_p = one_of({1, 1, 0.4, 0.9}),
                                 .repeat_penalty = one_of({1, 1, 2, 0.7}),
                                 .frequency_penalty = one_of({0, 0.8, -0.3}),
                                 .presence_penalty = one_of({0, 0.6, -0.5}),
                                 .seed = static_cast<uint64_t>(round)};
    const std::vector<int32_t> prompt{2, 2, 5, 7};
    Definition definition(logits);
    definition.penalise(options, {2, 5, 7}, {{7, 1}, {9, 2}});
    const std::map<size_t, double> wanted = definition.filtered(options);
    std::map<size_t, int> times;
    for (int i = 0; i < kDraws; ++i) {
      Sampler sampler(options, static_cast<uint64_t>(i), prompt);
      for (const size_t id : {9u, 7u, 9u}) {  // no choice: these are drawn first
        std::vector<float> only(12, -INFINITY);
        only[id] = 0;
        sampler.next(only);
      }
      ++times[static_cast<size_t>(sampler.next(logits))];
    }
    for (const auto& [id, n] : times) EXPECT_TRUE(wanted.contains(id)) << "round " << round << ", token " << id;
    for (const auto& [id, p] : wanted)
      EXPECT_NEAR(times[id], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << "round " << round << ", " << id;
  }
}

// The random numbers are those of the standard's generator, so a seed means the same text on every machine.
TEST(Sampler, DrawsFollowTheNumbersOfTheSeed) {
  const std::vector<float> logits{std::log(.1f), std::log(.2f), std::log(.3f), std::log(.4f)};
  for (const auto& [seed, sample] : {std::pair<uint64_t, uint64_t>{0, 0}, {1, 0}, {uint64_t{7} << 32, 3}, {5, 1000}}) {
    std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(sample),
                        static_cast<uint32_t>(sample >> 32)};
    std::mt19937_64 numbers(words);
    Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1, .seed = seed}, sample);
    for (int i = 0; i < 50; ++i) {
      const double x = static_cast<double>(numbers() >> 11) * 0x1p-53;
      EXPECT_EQ(sampler.next(logits), x < .1 ? 0 : x < .3 ? 1 : x < .6 ? 2 : 3) << seed << " " << sample;
    }
  }
}

TEST(Sampler, MinPLeavesOutWhatIsBelowItsPartOfTheLikeliest) {
  for (const int64_t top_k : {0, 3}) {  // a floor of all tokens, and a filter of the best
    Sampler sampler({.temperature = 50, .top_k = top_k, .top_p = 1, .min_p = 0.25});
    std::set<int32_t> seen;
    for (int i = 0; i < 300; ++i) seen.insert(sampler.next(std::vector<float>{0, std::log(.26f), std::log(.24f)}));
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1})) << top_k;
  }
}

TEST(Sampler, OfEqualLogitsTheFirstIsTheLikeliest) {
  EXPECT_EQ(Sampler({.temperature = 0}).next(std::vector<float>{1, 2, 2}), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 1}).next(std::vector<float>{1, 2, 2}), 1);
}

TEST(Sampler, TheLikeliestOfManyIsTheFirstWhereverItStands) {
  std::mt19937 random(6);
  std::uniform_int_distribution<int> steps(-50, 50);  // many are equal
  for (const size_t size : {1, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    std::vector<float> logits(size);
    Sampler quick({.temperature = 0});
    for (int i = 0; i < 40; ++i) {
      for (float& x : logits) x = static_cast<float>(steps(random));
      if (i % 2) logits[random() % size] = 51;
      if (i % 3 == 0) logits[random() % size] = -INFINITY;
      if (size == 1 && !std::isfinite(logits[0])) continue;
      ASSERT_EQ(quick.next(logits), std::max_element(logits.begin(), logits.end()) - logits.begin()) << size;
    }
    logits.back() = NAN;
    EXPECT_THROW(quick.next(logits), Error);
    logits.assign(size, -INFINITY);
    EXPECT_THROW(quick.next(logits), Error);
    logits.back() = INFINITY;
    EXPECT_THROW(quick.next(logits), Error);
  }
}

TEST(Sampler, FiltersOfALargeVocabularyKeepWhatTheirDefinitionsSay) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(6000);
  for (float& x : logits) x = normal(random);
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0, before = 0;
  for (const float x : sorted) total += std::exp(x);
  size_t nucleus = 0;
  while (before < 0.9 * total) before += std::exp(sorted[nucleus++]);
  ASSERT_GT(nucleus, 64u);
  const auto lowest_of = [&](SamplerOptions options) {
    options.temperature = 100;  // nearly uniform over what is left
    Sampler sampler(options);
    float lowest = sorted[0];
    for (int i = 0; i < 20000; ++i) lowest = std::min(lowest, logits[static_cast<size_t>(sampler.next(logits))]);
    return lowest;
  };
  EXPECT_EQ(lowest_of({.top_k = 0, .top_p = 0.9}), sorted[nucleus - 1]);
  EXPECT_EQ(lowest_of({.top_k = 2000, .top_p = 1}), sorted[1999]);
}

// The slow way: every token is a candidate, in double, and every list is sorted from end to end.
class Plain {
 public:
  Plain(const SamplerOptions& options, const std::vector<int32_t>& prompt) : o_(options) {
    std::seed_seq words{static_cast<uint32_t>(o_.seed), static_cast<uint32_t>(o_.seed >> 32), 0u, 0u};
    numbers_.seed(words);
    for (const int32_t id : prompt) drawn_.emplace(id, 0);
  }

  int32_t next(std::vector<float> logits) {
    near_ = false;
    adjust(logits);
    all_.clear();
    for (size_t i = 0; i < logits.size(); ++i) all_.push_back({logits[i], static_cast<int32_t>(i)});
    const int32_t id = o_.temperature == 0 ? std::ranges::min_element(all_, better)->id : drawn();
    ++drawn_[id];
    return id;
  }
  /// Whether another rounding might have led to another token.
  bool near() const { return near_; }

 private:
  void adjust(std::vector<float>& logits) const {
    for (const auto& [id, added] : o_.bias)
      if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += static_cast<float>(added);
    for (const auto& [id, times] : drawn_) {
      if (static_cast<size_t>(id) >= logits.size()) continue;
      double x = logits[static_cast<size_t>(id)];
      x = x > 0 ? x / o_.repeat_penalty : x * o_.repeat_penalty;
      if (times > 0) x -= static_cast<double>(times) * o_.frequency_penalty + o_.presence_penalty;
      logits[static_cast<size_t>(id)] = static_cast<float>(x);
    }
  }

  // Cuts the list where it sums to a part of all.
  void cut(double part, double total, double most) {
    double before = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      near_ = near_ || std::abs(before - part * total) < 1e-5 * total;
      if (i > 0 && before >= part * total) return all_.resize(i);
      before += std::exp(all_[i].logit - most);
    }
  }

  double sum(double most) const {
    double total = 0;
    for (const Candidate& c : all_) total += std::exp(c.logit - most);
    return total;
  }

  int32_t drawn() {
    const double most = std::ranges::min_element(all_, better)->logit;
    if (o_.top_k > 0 && static_cast<size_t>(o_.top_k) <= all_.size()) {
      std::ranges::sort(all_, better);
      all_.resize(static_cast<size_t>(o_.top_k));
    }
    if (o_.top_p < 1) {
      std::ranges::sort(all_, better);
      cut(o_.top_p, sum(most), most);
    }
    if (o_.min_p > 0) std::erase_if(all_, [&](const Candidate& c) { return c.logit < most + std::log(o_.min_p); });
    if (o_.typical_p < 1) {
      std::ranges::sort(all_, better);
      const double total = sum(most), norm = most + std::log(total);
      double entropy = 0;
      for (const Candidate& c : all_)
        if (std::isfinite(c.logit)) entropy += std::exp(c.logit - norm) * (norm - c.logit);
      std::ranges::stable_sort(all_, {}, [&](const Candidate& c) { return std::abs(norm - c.logit - entropy); });
      cut(o_.typical_p, total, most);
    }
    return one(std::ranges::min_element(all_, better)->logit);
  }

  int32_t one(double most) {
    std::vector<double> weights;
    for (const Candidate& c : all_) weights.push_back(std::exp((c.logit - most) / o_.temperature));
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double goal = total * static_cast<double>(numbers_() >> 11) * 0x1p-53;
    double before = 0;
    int32_t last = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      near_ = near_ || std::abs(before - goal) < 1e-5 * total;
      if (weights[i] == 0) continue;
      last = all_[i].id, before += weights[i];
      near_ = near_ || std::abs(before - goal) < 1e-5 * total;
      if (goal < before) break;
    }
    return last;
  }

  SamplerOptions o_;
  std::mt19937_64 numbers_;
  std::map<int32_t, int64_t> drawn_;
  std::vector<Candidate> all_;
  bool near_ = false;
};

// Logits of one of several kinds.
std::vector<float> any_logits(std::mt19937& random, size_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> logits(size);
  const auto kind = random() % 7;
  for (float& x : logits) {
    x = 3 * normal(random);
    if (kind == 1) x = std::round(x);  // many are equal
    if (kind == 2) x = 1.5f;           // all are
    if (kind == 3) x *= 1000;
    if (kind == 4 && random() % 3) x = -INFINITY;
    if (kind == 5) x /= 100;
  }
  if (kind == 6)  // peaks
    for (int i = 0; i < 5; ++i) logits[random() % size] += 15;
  logits[random() % size] = 2;  // one is finite
  return logits;
}

// Whatever is left out unseen, and however weights are summed: the same tokens in the same order.
TEST(Sampler, ChoicesAreThoseOfThePlainDefinition) {
  std::mt19937 random(31);
  const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
  int draws = 0, others = 0;
  for (int round = 0; round < 1500; ++round) {
    const bool large = round % 100 == 0;
    const auto size =
        static_cast<size_t>(large ? one_of({20000, 50000}) : one_of({1, 2, 15, 16, 17, 100, 255, 256, 257, 600, 1025}));
    SamplerOptions options{.temperature = one_of({0, 0.01, 0.5, 1, 1, 1.5, 100, 100}),
                           .top_k = static_cast<int64_t>(one_of({0, 0, 0, 1, 3, 15, 17, 40, 100, 1000})),
                           .top_p = one_of({1, 1, 0.01, 0.5, 0.9, 0.95, 0.999, 0.9999999}),
                           .min_p = one_of({0, 0, 0, 0.001, 0.1, 1}),
                           .typical_p = one_of({1, 1, 1, 0.4, 0.95}),
                           .seed = random()};
    if (random() % 4 == 0) options.repeat_penalty = one_of({0.8, 1.3});
    if (random() % 4 == 0) options.frequency_penalty = one_of({-0.5, 0.7});
    if (random() % 4 == 0) options.presence_penalty = one_of({-0.5, 5});
    if (random() % 4 == 0) options.bias = {{0, 4.0}, {13, -100.0}, {300, 20.0}, {1 << 20, 100.0}};
    const std::vector<int32_t> prompt{3, 3, 90, 1 << 20};
    Sampler sampler(options, 0, prompt);
    Plain plain(options, prompt);
    for (int i = 0; i < (large ? 2 : 8); ++i, ++draws) {
      const std::vector<float> logits = any_logits(random, size);
      const int32_t wanted = plain.next(logits), found = sampler.next(logits);
      if (found == wanted) continue;
      ASSERT_TRUE(plain.near()) << "round " << round << ", draw " << i << ": " << found << ", want " << wanted;
      ++others;
      break;  // penalties of the two differ from here on
    }
  }
  EXPECT_LE(others, draws / 1000);
}

TEST(Sampler, FrequenciesAmongManyTokensAreTheirProbabilities) {
  constexpr int kDraws = 20000;
  constexpr size_t kSize = 600, kGroup = 20;  // tokens whose frequency is looked at together
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> logits(kSize);
  for (float& x : logits) x = normal(random);
  std::vector<double> expected(kSize / kGroup), times(kSize / kGroup);
  double total = 0, chi_square = 0;
  for (const float x : logits) total += std::exp(x / 0.7);
  for (size_t i = 0; i < kSize; ++i) expected[i / kGroup] += kDraws * std::exp(logits[i] / 0.7) / total;
  Sampler sampler({.temperature = 0.7, .top_k = 0, .top_p = 1, .seed = 3});
  for (int i = 0; i < kDraws; ++i) ++times[static_cast<size_t>(sampler.next(logits)) / kGroup];
  for (size_t i = 0; i < times.size(); ++i) chi_square += std::pow(times[i] - expected[i], 2) / expected[i];
  EXPECT_LT(chi_square, 58.3) << "of 29 degrees of freedom; one seed in a thousand has more";
}

TEST(Sampler, AnyTemperatureLeavesOutWhatHasNoChance) {
  std::vector<float> logits(700, -INFINITY);
  logits[300] = 1, logits[301] = 1.5f;
  for (const double temperature : {1e-300, 1e-30, 1e-3, 1e3, 1e30, 1e300}) {
    Sampler sampler({.temperature = temperature, .top_k = 0, .top_p = 1});
    std::set<int32_t> seen;
    for (int i = 0; i < 60; ++i) seen.insert(sampler.next(logits));
    EXPECT_EQ(seen, temperature < 1 ? std::set<int32_t>{301} : (std::set<int32_t>{300, 301})) << temperature;
  }
}

TEST(Sampler, AnInfiniteLogitIsCertain) {
  const std::vector<float> logits{1, INFINITY, 2};
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 0, .top_p = 1}).next(logits), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 0, .top_p = 0.5}).next(logits), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 2}).next(logits), 1);
}

// Whatever stands behind the likeliest is never looked at, and a sequence of draws is the same.
TEST(Sampler, TheLikeliestAreEnough) {
  std::mt19937 random(5);
  const std::vector<SamplerOptions> all{{.temperature = 0},
                                        {.top_k = 7},
                                        {.top_k = 3, .top_p = 0.6},
                                        {.top_k = 40, .top_p = 1, .min_p = 0.3},
                                        {.top_k = 12, .typical_p = 0.7, .seed = 4}};
  for (const SamplerOptions& options : all) {
    Sampler whole(options), few(options);
    const auto wanted = static_cast<size_t>(few.wanted());
    EXPECT_EQ(wanted, options.temperature == 0 ? 1u : static_cast<size_t>(options.top_k));
    for (int turn = 0; turn < 200; ++turn) {
      std::vector<float> logits(100);
      for (float& x : logits) x = static_cast<float>(random() % 50) / 10;  // equal ones among them
      std::vector<Candidate> best;
      for (size_t i = 0; i < logits.size(); ++i) best.push_back({logits[i], static_cast<int32_t>(i)});
      std::stable_sort(best.begin(), best.end(),
                       [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
      best.resize(wanted);
      ASSERT_EQ(few.next(best), whole.next(logits));
    }
  }
  EXPECT_EQ(Sampler({.top_k = 0}).wanted(), 0);
  EXPECT_EQ(Sampler({.repeat_penalty = 1.1}).wanted(), 0);
  EXPECT_EQ(Sampler({.presence_penalty = 0.1}).wanted(), 0);
  EXPECT_EQ(Sampler({.temperature = 0, .frequency_penalty = 0.1}).wanted(), 0);
  EXPECT_EQ(Sampler({.bias = {{3, 1.0}}}).wanted(), 0);
}

TEST(Sampler, WhatIsNotFiniteIsFoundAnywhere) {
  const float most = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  for (const size_t size : {0, 1, 15, 16, 17, 50}) {
    std::vector<float> logits(size, most);
    EXPECT_TRUE(all_finite(logits)) << size;
    for (float& x : logits) {
      for (const float other : {infinity, -infinity, std::nanf("")}) {
        x = other;
        EXPECT_FALSE(all_finite(logits)) << other << " of " << size;
      }
      x = -most;
    }
  }
}

TEST(Sampler, LogProbabilitiesAreTheLogSoftmax) {
  const std::vector<float> logits{1, 3, -2, 3};
  const double norm = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(-2.0));
  EXPECT_NEAR(log_probability(logits, 0), 1 - norm, 1e-12);
  const std::vector<ScoredToken> best = likeliest(logits, 3, 100);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 0);
  EXPECT_NEAR(best[0].logprob, 3 - norm, 1e-12);
  const std::vector<ScoredToken> known = likeliest(logits, 3, 1);
  ASSERT_EQ(known.size(), 1u);
  EXPECT_NEAR(known[0].logprob, 1 - norm, 1e-12) << "of all columns";
}

}  // namespace
}  // namespace motet
