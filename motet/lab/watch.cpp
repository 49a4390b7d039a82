#include "motet/lab/watch.h"

#include <algorithm>

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
  if (std::ssize(w.gradient_norms) > w.warmup)
    out["largest_gradient"] =
        *std::max_element(w.gradient_norms.begin() + static_cast<std::ptrdiff_t>(w.warmup), w.gradient_norms.end());
  return out;
}

}  // namespace motet
