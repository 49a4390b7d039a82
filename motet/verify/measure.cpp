#include "motet/verify/measure.h"

#include <algorithm>
#include <limits>

namespace motet {
namespace {

constexpr double kDifferent = std::numeric_limits<double>::infinity();

// max|got - want| over finite entries of want.
double largest_difference(const Tensor& given, const Tensor& want) {
  const Tensor got = given.defined() ? given.detach().to(at::kCPU, at::kDouble) : at::zeros_like(want);
  if (got.sizes() != want.sizes()) return kDifferent;
  const Tensor finite = want.isfinite();
  const Tensor same = at::where(finite, got.isfinite(), got == want);  // an infinity equals only itself, NaN nothing
  if (!same.all().item<bool>()) return kDifferent;
  return largest_magnitude((got - want).masked_fill(~finite, 0));
}

}  // namespace

double largest_magnitude(const Tensor& t) {
  if (t.numel() == 0) return 0;
  return t.detach().to(at::kDouble).abs().masked_fill(~t.isfinite(), 0).max().item<double>();
}

double output_error(const Tensor& got, const Tensor& want_any) {
  const Tensor want = want_any.to(at::kDouble);
  const double scale = largest_magnitude(want);
  return largest_difference(got, want) / (scale > 0 ? scale : 1);
}

double gradient_error(const Tensor& got, const Tensor& want_any, double largest, bool zero) {
  const Tensor want = want_any.to(at::kDouble);
  if (largest <= 0) largest = 1;
  if (zero) return largest_difference(got, at::zeros_like(want)) / largest;
  return largest_difference(got, want) / std::max(largest_magnitude(want), 1e-3 * largest);
}

}  // namespace motet
