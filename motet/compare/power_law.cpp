#include "motet/compare/power_law.h"

#include <algorithm>
#include <cmath>

namespace motet {
namespace {

constexpr double kSteepest = 4;  // the exponents that are tried
constexpr int kGrid = 160, kRefinements = 60;

struct Line {
  double floor, factor, squares;
};

// The best floor and factor for one exponent: a line in x = C^-exponent, through 0 where it has no floor.
Line line_of(const std::vector<double>& x, const std::vector<double>& y, bool has_floor) {
  const double n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i];
  Line line{.floor = 0, .factor = sxy / sxx, .squares = 0};
  if (const double spread = n * sxx - sx * sx; has_floor && spread > 0) {
    const double slope = (n * sxy - sx * sy) / spread, floor = (sy - slope * sx) / n;
    if (floor > 0) line.floor = floor, line.factor = slope;
  }
  for (size_t i = 0; i < x.size(); ++i) line.squares += std::pow(y[i] - line.floor - line.factor * x[i], 2);
  return line;
}

}  // namespace

double PowerLaw::at(double cost) const { return floor + factor * std::pow(cost, -exponent); }

double PowerLaw::cost_of(double loss) const {
  if (!(factor > 0 && exponent > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (loss <= floor) return std::numeric_limits<double>::infinity();
  return std::pow(factor / (loss - floor), 1 / exponent);
}

PowerLaw fit_power_law(const std::vector<double>& costs, const std::vector<double>& losses) {
  if (costs.size() < 2 || std::ranges::min(costs) == std::ranges::max(costs)) return {};
  const bool has_floor = costs.size() >= kPointsForFloor;
  double logs = 0;
  for (const double cost : costs) logs += std::log(cost) / static_cast<double>(costs.size());
  const double middle = std::exp(logs);  // powers of cost / middle are near 1
  const auto line = [&](double exponent) {
    std::vector<double> x;
    for (const double cost : costs) x.push_back(std::pow(cost / middle, -exponent));
    return line_of(x, losses, has_floor);
  };
  // With a floor an exponent of 0 is no law. The best of a grid, refined by golden sections between its neighbours.
  const double low = has_floor ? 1e-3 : -kSteepest, step = (kSteepest - low) / kGrid;
  double best = low, least = line(low).squares;
  for (int i = 1; i <= kGrid; ++i)
    if (const double squares = line(low + i * step).squares; squares < least) least = squares, best = low + i * step;
  double a = std::max(low, best - step), b = std::min(kSteepest, best + step);
  const double golden = (std::sqrt(5.0) - 1) / 2;
  for (int i = 0; i < kRefinements; ++i) {
    const double left = b - golden * (b - a), right = a + golden * (b - a);
    if (line(left).squares < line(right).squares)
      b = right;
    else
      a = left;
  }
  const double exponent = (a + b) / 2;
  const Line found = line(exponent);
  return {.floor = found.floor, .factor = found.factor * std::pow(middle, exponent), .exponent = exponent};
}

}  // namespace motet
