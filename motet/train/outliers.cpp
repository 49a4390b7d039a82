#include "motet/train/outliers.h"

#include <cmath>

namespace motet {
namespace {

constexpr size_t kWindow = 128;

bool is_above(double x, const std::deque<double>& before, double deviations) {
  const auto count = static_cast<double>(before.size());
  double sum = 0, squares = 0;
  for (const double y : before) sum += y;
  const double mean = sum / count;
  for (const double y : before) squares += (y - mean) * (y - mean);
  return x - mean > deviations * std::sqrt(squares / count);
}

void push(std::deque<double>& window, double x) {
  window.push_back(x);
  if (window.size() > kWindow) window.pop_front();
}

}  // namespace

bool Outliers::is_one(double loss, double norm) {
  if (deviations_ == 0) return false;
  if (losses_.size() == kWindow && (is_above(loss, losses_, deviations_) || is_above(norm, norms_, deviations_))) {
    ++count_;
    return true;
  }
  push(losses_, loss), push(norms_, norm);
  return false;
}

nlohmann::json Outliers::state() const { return {{"count", count_}, {"losses", losses_}, {"norms", norms_}}; }

void Outliers::restore(const nlohmann::json& state) {
  count_ = state.at("count").get<int64_t>();
  losses_ = state.at("losses").get<std::deque<double>>(), norms_ = state.at("norms").get<std::deque<double>>();
}

}  // namespace motet
