#pragma once
#include <cstdint>
#include <functional>

namespace motet {

/// Threads are injected: parallel_for(n, task) runs task(0..n-1), in any order, on any threads.
struct Threads {
  int count = 1;
  std::function<void(int64_t, const std::function<void(int64_t)>&)> parallel_for;  // empty: in this thread

  void run(int64_t n, const std::function<void(int64_t)>& task) const {
    if (n > 1 && parallel_for) return parallel_for(n, task);
    for (int64_t i = 0; i < n; ++i) task(i);
  }
};

}  // namespace motet
