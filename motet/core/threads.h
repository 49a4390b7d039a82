#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

namespace motet {

/// Threads are injected: parallel_for(n, task) runs task(0..n-1), in any order, on any threads.
struct Threads {
  int count = 1;
  std::function<void(int64_t, const std::function<void(int64_t)>&)> parallel_for;  // empty: in this thread

  void run(int64_t n, const std::function<void(int64_t)>& task) const {
    if (count > 1 && n > 1 && parallel_for) return parallel_for(n, task);
    for (int64_t i = 0; i < n; ++i) task(i);
  }
  /// part(begin, end) on parts of [0, n), of at least `grain` each.
  void run_parts(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& part) const {
    const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, count);
    run(parts, [&](int64_t i) { part(n * i / parts, n * (i + 1) / parts); });
  }
};

}  // namespace motet
