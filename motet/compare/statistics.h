#pragma once
#include <vector>

namespace motet {

double mean(const std::vector<double>&);
/// Standard deviation of a sample (n - 1); 0 for fewer than two numbers.
double deviation(const std::vector<double>&);

/// Two-sided p-value of a paired t-test that the mean difference a - b is 0; NaN for fewer than two pairs. Equal
/// differences: 0, or 1 when they are all 0. Source: Student 1908.
double paired_p_value(const std::vector<double>& a, const std::vector<double>& b);

/// P(|t| >= |value|) for `freedom` degrees of freedom, by the regularised incomplete beta function.
double two_sided_t(double value, double freedom);

}  // namespace motet
