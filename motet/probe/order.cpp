#include "motet/probe/order.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

// A bin is all float32 numbers that share sign, exponent and the first 11 bits behind the point.
constexpr int kDropped = 12;
constexpr int64_t kBins = int64_t{1} << (31 - kDropped);

double edge(int64_t bin) { return std::bit_cast<float>(static_cast<uint32_t>(bin) << kDropped); }

}  // namespace

void OrderStream::add(const Tensor& given) {
  if (given.numel() == 0) return;
  const Tensor x = given.detach().flatten(), size = x.abs();
  const Tensor kept = largest_.defined() ? at::cat({largest_, size.to(at::kDouble)}) : size.to(at::kDouble);
  largest_ = std::get<0>(kept.topk(std::min<int64_t>(kept.numel(), OrderStatistics::kRanks.back())));
  const Tensor bins = at::bitwise_right_shift(size.to(at::kFloat).view(at::kInt), kDropped).bincount({}, kBins);
  counts_ = counts_.defined() ? counts_ + bins : bins;
  const Tensor wide = x.to(at::kDouble);
  if (count_ == 0) shift_ = wide.mean().item<double>();
  count_ += x.numel();
  const Tensor d = wide - shift_, square = d * d;
  const Tensor sums = at::stack({d.sum(), square.sum(), (square * d).sum(), (square * square).sum()}).cpu();
  for (int64_t i = 0; i < 4; ++i) sums_[static_cast<size_t>(i)] += sums[i].item<double>();
}

OrderStatistics OrderStream::statistics() const {
  if (count_ == 0) fail("order statistics of no numbers, want at least one");
  OrderStatistics out{.count = count_};
  for (size_t i = 0; i < out.largest.size(); ++i)
    out.largest[i] = largest_[std::min(OrderStatistics::kRanks[i], largest_.numel()) - 1].item<double>();

  const Tensor below = counts_.cumsum(0).cpu();
  const double rank = static_cast<double>(count_) / 2;
  const int64_t bin = at::searchsorted(below, at::tensor(rank)).item<int64_t>();
  const double before = bin > 0 ? below[bin - 1].item<double>() : 0, inside = below[bin].item<double>() - before;
  out.median = std::lerp(edge(bin), edge(bin + 1), (rank - before) / inside);

  const double n = static_cast<double>(count_), m = sums_[0] / n, s2 = sums_[1] / n, s3 = sums_[2] / n,
               s4 = sums_[3] / n, variance = s2 - m * m;
  out.kurtosis = (s4 - 4 * m * s3 + 6 * m * m * s2 - 3 * m * m * m * m) / (variance * variance);
  return out;
}

}  // namespace motet
