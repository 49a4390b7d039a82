#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "motet/sampling/token_weights.h"

namespace motet {

/// How the next token is drawn, in this order: bias, penalties, top-k, top-p, min-p, typical, temperature.
struct SamplerOptions {
  double temperature = 0.8;     // 0 takes the likeliest token
  int64_t top_k = 40;           // 0: all
  double top_p = 0.95;          // 1: all
  double min_p = 0.0;           // tokens below min_p times the likeliest are left out
  double typical_p = 1.0;       // 1: all; locally typical sampling, arXiv:2202.00666
  double repeat_penalty = 1.0;  // divides positive and multiplies negative logits of tokens of prompt and continuation
  double frequency_penalty = 0.0,
         presence_penalty = 0.0;  // taken from logits for each time a token was drawn, and once
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, double>> bias = {};  // added to the logits of these tokens
};

/// A token with its logarithmic probability.
struct ScoredToken {
  int32_t id = 0;
  double logprob = 0;
};

/// A token that may be drawn.
struct Candidate {
  double logit = 0;
  int32_t id = 0;
};
/// Of two equal ones the first token is the better.
inline constexpr auto better = [](const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

class Sampler {
 public:
  /// `sample`: which of several samples of one request; each has random numbers of its own, whatever their number.
  /// `prompt`: tokens that the repeat penalty knows from the beginning.
  explicit Sampler(SamplerOptions, uint64_t sample = 0, std::span<const int32_t> prompt = {});
  /// The next token from logits [V]; the penalties of later ones know it. Bias and penalties are rounded to float. An
  /// infinite logit is certain. Throws Error for a NaN, and when no logit is finite.
  int32_t next(std::span<const float> logits_V);
  /// How many of the likeliest tokens are all that next() looks at; 0: it looks at every logit.
  int64_t wanted() const;
  /// The same from these alone, at least wanted() of them, likeliest first and of equal ones the first token first.
  int32_t next(std::span<const Candidate> likeliest);

 private:
  int32_t choose(std::span<const float> logits_V);
  std::span<const float> adjusted(std::span<const float> logits_V);
  void apply_bias();
  bool penalises() const;
  void apply_penalties();
  bool keeps_best(size_t of) const;
  double floor(std::span<const float> logits_V, float most);
  void gather(std::span<const float> logits_V, double floor);
  int32_t filtered(double total = 0);
  void keep_top_k();
  void keep_top_p(double total);
  void keep_min_p();
  void keep_typical();
  double uniform();
  int32_t draw();

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<float> adjusted_, maxima_;  // memory kept from token to token
  TokenWeights weights_;
  std::vector<Candidate> candidates_;
  std::unordered_map<int32_t, int64_t> drawn_;  // how often each token was; 0: it is in the prompt alone
};

/// Whether none is NaN or infinite.
bool all_finite(std::span<const float> logits);

/// Log softmax of the logits at `id`, and at the `count` likeliest of the first `known` tokens, best first.
double log_probability(std::span<const float> logits_V, int32_t id);
std::vector<ScoredToken> likeliest(std::span<const float> logits_V, int64_t count, int64_t known);

}  // namespace motet
