#pragma once
#include <deque>
#include <nlohmann/json.hpp>

namespace motet {

/// train.skip_outliers: which steps are so far above those before them that their gradient is not taken. A step is
/// measured by its loss and its gradient's norm against mean and standard deviation of the last 128 that were taken;
/// before there are 128 every step is. Nothing is taken from steps that are left out, so a jump that stays soon ends
/// the run: at most 1 % of its steps, and one, are left out.
class Outliers {
 public:
  /// deviations 0: none is one.
  explicit Outliers(double deviations) : deviations_(deviations) {}

  /// Whether the step is one; otherwise it joins those that later ones are measured against.
  bool is_one(double loss, double gradient_norm);
  int64_t count() const { return count_; }
  /// Whether more than 1 % of the steps made so far were left out.
  bool too_many(int64_t steps) const { return count_ > 1 && count_ * 100 > steps; }

  nlohmann::json state() const;
  void restore(const nlohmann::json&);

 private:
  double deviations_;
  int64_t count_ = 0;
  std::deque<double> losses_, norms_;
};

}  // namespace motet
