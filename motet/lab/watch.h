#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace motet {

/// Steps that a loss is measured against, and by how many of their deviations it has to lie above them.
inline constexpr size_t kSpikeWindow = 50;
inline constexpr double kSpikeDeviations = 4;

/// How many training losses lie more than 4 standard deviations (n - 1) above the mean of the 50 before them, which may
/// be spikes themselves; the first 50 are none. Torch-free.
int64_t spikes(const std::vector<double>& losses);

/// What a training did, for a cell that watches it.
struct Watched {
  std::vector<double> losses, gradient_norms;  // of the steps made, norms before they are clipped
  int64_t planned = 0;                         // steps of the budget
  int64_t warmup = 0;                          // of them: while the rate rises
  bool diverged = false;                       // it ended early, at a number that is not finite
};
/// largest_gradient: the largest finite norm behind the warm-up, nothing when there is none. A step whose norm is not
/// finite was skipped, as float16 does where its scale is too large, or the last one.
///
/// spikes: see above; where the training diverged also every step that it no longer made.
///
/// diverged: 1 or 0.
std::map<std::string, double> watched(const Watched&);
std::vector<std::string> watch_metrics();  // their names

}  // namespace motet
