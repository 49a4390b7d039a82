#include "motet/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "motet/core/error.h"

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

double t_quantile(double tail, double freedom) {
  double low = 0, high = 1;
  while (two_sided_t(high, freedom) > tail) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = (low + high) / 2;
    (two_sided_t(middle, freedom) > tail ? low : high) = middle;
  }
  return high;
}

namespace {

std::vector<double> numbers_of(const std::vector<double>& all) {
  std::vector<double> found;
  for (const double x : all)
    if (std::isfinite(x)) found.push_back(x);
  return found;
}

double error_of_mean(const std::vector<double>& x) { return deviation(x) / std::sqrt(static_cast<double>(x.size())); }

}  // namespace

Difference difference_of(const std::vector<double>& given) {
  const std::vector<double> differences = numbers_of(given);
  Difference out{.pairs = differences.size()};
  if (out.pairs == 0) return out;
  out.mean = mean(differences);
  if (out.pairs < 2) return out;
  const double freedom = static_cast<double>(out.pairs - 1), error = error_of_mean(differences);
  const double half = t_quantile(0.05, freedom) * error;
  out.low = out.mean - half, out.high = out.mean + half;
  out.p = error > 0 ? two_sided_t(out.mean / error, freedom) : out.mean == 0 ? 1 : 0;
  return out;
}

Difference paired_difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differences.push_back(a[i] - b[i]);
  return difference_of(differences);
}

double sign_flip(const std::vector<double>& given) {
  const std::vector<double> differences = numbers_of(given);
  const size_t n = differences.size();
  if (n < 2) return std::numeric_limits<double>::quiet_NaN();
  if (n > 24) fail("sign_flip: ", n, " differences, want at most 24");
  const auto sum_of = [&](size_t signs) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += (signs >> i & 1) != 0 ? -differences[i] : differences[i];
    return std::abs(sum);
  };
  const double found = sum_of(0);
  size_t as_far = 0;
  for (size_t signs = 0; signs < size_t{1} << n; ++signs) as_far += sum_of(signs) >= found * (1 - 1e-12);
  return static_cast<double>(as_far) / static_cast<double>(size_t{1} << n);
}

double equivalence(const std::vector<double>& given, double margin) {
  const std::vector<double> differences = numbers_of(given);
  if (differences.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const double distance = margin - std::abs(mean(differences)), error = error_of_mean(differences);
  if (error == 0) return distance > 0 ? 0 : 1;
  const double tail = two_sided_t(distance / error, static_cast<double>(differences.size() - 1)) / 2;
  return distance > 0 ? tail : 1 - tail;
}

double slope(const std::vector<double>& x, const std::vector<double>& y) {
  const double middle = mean(x);
  double over = 0, under = 0;
  for (size_t i = 0; i < x.size(); ++i) over += (x[i] - middle) * y[i], under += (x[i] - middle) * (x[i] - middle);
  return over / under;
}

std::vector<double> holm(const std::vector<double>& p_values) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p_values.size(); ++i)
    if (!std::isnan(p_values[i])) order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> corrected = p_values;
  double last = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    last = std::max(last, std::min(1.0, static_cast<double>(order.size() - rank) * p_values[order[rank]]));
    corrected[order[rank]] = last;
  }
  return corrected;
}

}  // namespace motet
