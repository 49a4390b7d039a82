#pragma once
#include <array>

#include "motet/ops/torch.h"

namespace motet {

/// How the numbers of a tensor are spread, as tables of outliers have it (arXiv:2410.05258, table 5).
struct OrderStatistics {
  static constexpr std::array<int64_t, 5> kRanks{1, 2, 3, 10, 100};
  int64_t count = 0;
  std::array<double, 5> largest{};  // of |x|, at these ranks; the smallest where there are fewer numbers
  double median = 0;                // of |x|, to one part in 2,000
  double kurtosis = 0;              // of x: the fourth moment about the mean over the variance squared; 3 of a Gaussian
};

/// Takes numbers a tensor at a time and keeps some hundred of them, counts by size and four sums.
class OrderStream {
 public:
  /// Of any shape, finite.
  void add(const Tensor& values);
  /// Throws Error when nothing was added.
  OrderStatistics statistics() const;

 private:
  Tensor largest_, counts_;  // descending; by the upper bits of |x| in float32
  int64_t count_ = 0;
  double shift_ = 0;              // near the mean, about which is summed
  std::array<double, 4> sums_{};  // of (x - shift)^1 to ^4
};

}  // namespace motet
