#pragma once
#include <cstddef>
#include <limits>
#include <vector>

namespace motet {

/// L = floor + factor * C^-exponent.
struct PowerLaw {
  double floor = 0, factor = std::numeric_limits<double>::quiet_NaN(), exponent = factor;

  double at(double cost) const;
  /// The cost at which the law comes to a loss: infinite for one that it never reaches, NaN for a law that does not
  /// fall.
  double cost_of(double loss) const;
};
/// From how many points on a law has a floor, the loss that no cost removes: its three numbers fit any four closely.
inline constexpr size_t kPointsForFloor = 5;
/// Least squares of the losses, the floor at least 0. NaN for fewer than two different costs.
PowerLaw fit_power_law(const std::vector<double>& costs, const std::vector<double>& losses);

}  // namespace motet
