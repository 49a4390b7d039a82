#include "motet/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace motet {
namespace {

// A part of the budget, or steps of it.
double part_of(double given, int64_t steps) {
  return given < 1 ? given : std::min(given / static_cast<double>(steps), 1.0);
}

double half_cosine(double x) { return 0.5 * (1 + std::cos(std::numbers::pi * x)); }

// From 1 to 0.
double fallen(DecayShape shape, double x) {
  if (shape == DecayShape::linear) return 1 - x;
  return shape == DecayShape::sqrt ? 1 - std::sqrt(x) : half_cosine(x);
}

}  // namespace

double learning_rate_factor(const TrainOptions& train, double done, int64_t steps) {
  const double last = train.final_learning_rate, warmup = part_of(train.warmup, steps), at = std::min(done, 1.0);
  if (at < warmup) return at / warmup;
  const double x = warmup < 1 ? (at - warmup) / (1 - warmup) : 1;
  switch (train.schedule) {
    case Schedule::cosine:
      return last + (1 - last) * half_cosine(x);
    case Schedule::linear:
      return 1 - (1 - last) * x;
    case Schedule::wsd: {
      const double decay = part_of(train.decay, steps), left = 1 - at;
      return left >= decay ? 1 : last + (1 - last) * fallen(train.decay_shape, 1 - left / decay);
    }
    case Schedule::inverse_sqrt: {
      const double from = std::max(warmup, 1 / static_cast<double>(steps));
      return std::sqrt(from / std::max(at, from));  // at is 0 at the first step of a budget in minutes
    }
    case Schedule::constant:
      break;
  }
  return 1;
}

}  // namespace motet
