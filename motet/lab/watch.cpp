#include "motet/lab/watch.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "motet/statistics/statistics.h"

namespace motet {

int64_t spikes(const std::vector<double>& losses) {
  int64_t count = 0;
  for (size_t i = kSpikeWindow; i < losses.size(); ++i) {
    const auto end = losses.begin() + static_cast<std::ptrdiff_t>(i);
    const std::vector<double> before(end - kSpikeWindow, end);
    count += losses[i] > mean(before) + kSpikeDeviations * deviation(before);
  }
  return count;
}

std::map<std::string, double> watched(const Watched& w) {
  const auto made = static_cast<int64_t>(w.losses.size());
  std::map<std::string, double> out{{"diverged", w.diverged ? 1 : 0}};
  out["spikes"] = static_cast<double>(spikes(w.losses) + (w.diverged ? w.planned - made : 0));
  std::optional<double> largest;
  for (size_t i = static_cast<size_t>(w.warmup); i < w.gradient_norms.size(); ++i)
    if (std::isfinite(w.gradient_norms[i])) largest = std::max(largest.value_or(0), w.gradient_norms[i]);
  if (largest) out["largest_gradient"] = *largest;
  return out;
}

std::vector<std::string> watch_metrics() { return {"diverged", "largest_gradient", "spikes"}; }

}  // namespace motet
