#include "motet/ops/peak.h"

#include <chrono>

#include "motet/ops/device.h"

namespace motet {
namespace {

// Products grow until the next one would not fit what is left of the time: from what fills no processor to what fills
// a GPU. Each is made a few times, for the first one allocates and wakes threads; the first of all, which may load a
// library, is made before the time begins.
constexpr int64_t kSmallest = 256, kLargest = 8192;
constexpr int kRepeats = 3;
constexpr double kSeconds = 0.1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double peak_flops_per_second(at::ScalarType type, at::Device device) {
  at::NoGradGuard no_grad;
  const auto matrix = [&](int64_t n) {
    return at::linspace(-1, 1, n * n, at::TensorOptions(at::kFloat).device(device)).to(type).view({n, n});
  };
  at::mm(matrix(kSmallest), matrix(kSmallest));
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  double peak = 0, last = 0;  // of the last size, seconds
  for (int64_t n = kSmallest; n <= kLargest && seconds_since(start) + 8 * last < kSeconds; n *= 2) {
    const Tensor a = matrix(n);
    Tensor product = at::empty_like(a);
    for (int i = 0; i < kRepeats && (last == 0 || seconds_since(start) < kSeconds); ++i) {
      synchronize(device);
      const auto begin = std::chrono::steady_clock::now();
      at::mm_out(product, a, a);
      synchronize(device);
      last = seconds_since(begin);
      peak = std::max(peak, 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / last);
    }
  }
  return peak;
}

}  // namespace motet
