#pragma once
#include <cstddef>
#include <limits>
#include <vector>

namespace motet {

double mean(const std::vector<double>&);
/// Standard deviation of a sample (n - 1); 0 for fewer than two numbers.
double deviation(const std::vector<double>&);

/// What is known of the mean difference a - b from pairs. NaN what fewer than two pairs cannot tell.
struct Difference {
  size_t pairs = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double low = mean, high = mean;  // 95 % interval (Student's t)
  double p = mean;                 // two-sided, of a mean of 0; of equal differences 0, or 1 when they are all 0
};
/// Of the places where both are numbers: a run that did not end is NaN. Source: Student 1908.
Difference paired_difference(const std::vector<double>& a, const std::vector<double>& b);

/// The p-values of several tests corrected by Holm's step-down rule (Holm 1979): to reject where one is below alpha
/// errs in any of them with a chance of at most alpha. NaN stays and is not counted.
std::vector<double> holm(const std::vector<double>& p_values);

/// P(|t| >= |value|) for `freedom` degrees of freedom, by the regularised incomplete beta function.
double two_sided_t(double value, double freedom);
/// The value with two_sided_t(value, freedom) = tail.
double t_quantile(double tail, double freedom);

}  // namespace motet
