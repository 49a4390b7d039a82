#include "motet/compare/statistics.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace motet {
namespace {

// Continued fraction of the incomplete beta function (modified Lentz; DLMF 8.17.22).
double beta_fraction(double a, double b, double x) {
  const double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < tiny ? tiny : d);
  double f = d;
  for (int m = 1; m <= 300; ++m) {
    for (int half = 0; half < 2; ++half) {
      const double n = half == 0 ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                 : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 + n * d;
      c = 1 + n / c;
      d = 1 / (std::abs(d) < tiny ? tiny : d);
      c = std::abs(c) < tiny ? tiny : c;
      f *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return f;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double deviation(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double m = mean(x);
  double sum = 0;
  for (double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

double two_sided_t(double value, double freedom) {
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value));
}

double paired_p_value(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 2 || a.size() != b.size()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  const double m = mean(difference), s = deviation(difference);
  if (s == 0) return m == 0 ? 1 : 0;
  return two_sided_t(m / (s / std::sqrt(static_cast<double>(a.size()))), static_cast<double>(a.size() - 1));
}

}  // namespace motet
