#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace motet {

inline constexpr size_t kLogitLanes = 16;  // in which logits are looked at: a compiler makes vectors of them

/// 2^y for y <= 0; 0 for y <= -126, minus infinity and NaN. The relative error is below 2e-7. It has no branch and
/// calls nothing, so that a compiler makes vectors of loops over it, which it does not of std::exp2.
inline float power_of_two(float y) {
  constexpr float kRounds = 12582912;      // 1.5 * 2^23: a sum with it is rounded to a whole number
  const float sum = y + kRounds;           // whose lowest bits are that number
  const float rest = y - (sum - kRounds);  // within 1/2
  float power = 1.3264713e-3f;             // minimax of the relative error, 1e-7
  power = power * rest + 9.671523e-3f;
  power = power * rest + 5.550734e-2f;
  power = power * rest + 2.4022242e-1f;
  power = power * rest + 6.93147e-1f;
  power = power * rest + 1;
  const uint32_t scaled = std::bit_cast<uint32_t>(power) + (std::bit_cast<uint32_t>(sum) << 23);
  const uint32_t all_or_none = 0u - static_cast<uint32_t>(y > -126);  // no choice, of which compilers may make a branch
  return std::bit_cast<float>(scaled & all_or_none);
}

/// The weights of all tokens, e^((logit - most) / temperature), and what they sum to. Relative errors are below 1e-6
/// where a weight matters to the sum.
class TokenWeights {
 public:
  /// No logit is above `most`, which is finite. Memory is kept from call to call.
  void set(std::span<const float> logits_V, float most, double temperature);
  double total() const { return total_; }
  /// The token at this part of the total, in the order of tokens; 0 <= part < 1. None of weight 0.
  int32_t at(double part) const;
  /// The logarithm of a weight such that all below it sum to `left_out` at the most, 0 < left_out < total. It is not
  /// the largest, but near it.
  double log_floor(double left_out) const;

 private:
  static constexpr size_t kBlock = 256;  // weights that floats sum up and that are searched for a token

  // Sets weights to 2^((logit - most) * scale) and returns their sum.
  static double weigh(std::span<const float> logits, float most, float scale, float* weights);
  static double sum_at_least(std::span<const float> weights, float least);
  // The first of the weights with which they sum to more than `left`, or the last that is not 0 where rounding let them
  // run out. `left` loses those before it.
  template <class Numbers>
  static size_t reached(const Numbers& weights, double& left);
  std::span<const float> block(size_t i) const;

  std::vector<float> weights_;
  std::vector<double> sums_;  // of blocks of weights
  double total_ = 0;
};

inline double TokenWeights::weigh(std::span<const float> logits, float most, float scale, float* weights) {
  std::array<float, kLogitLanes> sums{};
  size_t i = 0;
  for (; i + kLogitLanes <= logits.size(); i += kLogitLanes) {
    std::array<float, kLogitLanes> of;
    for (size_t lane = 0; lane < kLogitLanes; ++lane) of[lane] = power_of_two((logits[i + lane] - most) * scale);
    for (size_t lane = 0; lane < kLogitLanes; ++lane) sums[lane] += weights[i + lane] = of[lane];
  }
  double sum = 0;
  for (; i < logits.size(); ++i) sum += weights[i] = power_of_two((logits[i] - most) * scale);
  for (const float x : sums) sum += x;
  return sum;
}

inline double TokenWeights::sum_at_least(std::span<const float> weights, float least) {
  std::array<float, kLogitLanes> sums{};
  size_t i = 0;
  for (; i + kLogitLanes <= weights.size(); i += kLogitLanes)
    for (size_t lane = 0; lane < kLogitLanes; ++lane) sums[lane] += weights[i + lane] >= least ? weights[i + lane] : 0;
  double sum = 0;
  for (; i < weights.size(); ++i) sum += weights[i] >= least ? weights[i] : 0;
  for (const float x : sums) sum += x;
  return sum;
}

template <class Numbers>
size_t TokenWeights::reached(const Numbers& weights, double& left) {
  size_t last = 0;
  double before = 0, sum = 0;
  for (size_t i = 0; i < weights.size() && sum <= left; ++i)
    if (weights[i] != 0) last = i, before = sum, sum += weights[i];
  left -= before;
  return last;
}

inline void TokenWeights::set(std::span<const float> logits, float most, double temperature) {
  // Neither 0 nor infinite, so that 0 times it is 0, and minus infinity stays what it is.
  const auto scale = static_cast<float>(std::clamp<double>(
      1 / (temperature * std::log(2)), std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
  weights_.resize(logits.size()), sums_.clear(), total_ = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock)
    total_ += sums_.emplace_back(
        weigh(logits.subspan(i, std::min(kBlock, logits.size() - i)), most, scale, weights_.data() + i));
}

// The sums tell the block, and only there tokens are looked at one by one.
inline int32_t TokenWeights::at(double part) const {
  double left = total_ * part;
  const size_t i = reached(sums_, left);
  return static_cast<int32_t>(i * kBlock + reached(block(i), left));
}

inline double TokenWeights::log_floor(double left_out) const {
  double floor = std::log(left_out / static_cast<double>(weights_.size())), above = 0;
  for (int turn = 0; turn < 5; ++turn) {  // each takes as long as it takes to sort a few hundred tokens
    const double middle = (floor + above) / 2;
    const auto least = static_cast<float>(std::exp(middle));
    double sum = 0;
    for (size_t i = 0; i < sums_.size(); ++i)  // a block that sums to less has no such weight
      if (sums_[i] >= least) sum += sum_at_least(block(i), least);
    (sum >= total_ - left_out ? floor : above) = middle;
  }
  return floor;
}

inline std::span<const float> TokenWeights::block(size_t i) const {
  return std::span(weights_).subspan(i * kBlock, std::min(kBlock, weights_.size() - i * kBlock));
}

}  // namespace motet
