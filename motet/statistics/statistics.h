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
/// The same of differences that are there already; those that are NaN are left out.
Difference difference_of(const std::vector<double>& differences);

/// P of a mean as far from 0 as that of these differences, when the sign of each is as likely as the other: exact, over
/// all of their signs (Fisher 1935). For numbers of no known distribution. NaN for fewer than two; Error above 24.
double sign_flip(const std::vector<double>& differences);
/// P that the mean difference lies outside of +- margin, by two one-sided t tests (Schuirmann 1987). NaN for fewer than
/// two pairs.
double equivalence(const std::vector<double>& differences, double margin);
/// Least squares slope of y over x.
double slope(const std::vector<double>& x, const std::vector<double>& y);

/// The p-values of several tests corrected by Holm's step-down rule (Holm 1979): to reject where one is below alpha
/// errs in any of them with a chance of at most alpha. NaN stays and is not counted.
std::vector<double> holm(const std::vector<double>& p_values);

struct Interval {
  double low = std::numeric_limits<double>::quiet_NaN(), high = low;
};
/// P(|t| >= |value|) for `freedom` degrees of freedom, by the regularised incomplete beta function.
double two_sided_t(double value, double freedom);
/// The value with two_sided_t(value, freedom) = tail.
double t_quantile(double tail, double freedom);

}  // namespace motet
