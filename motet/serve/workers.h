#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace motet {

/// Threads for work that would hold up the I/O thread: reading JSON, tokenizing, rendering templates.
class Workers {
 public:
  Workers(int threads, size_t most_waiting);
  ~Workers() { stop(); }
  /// Waits for what runs, and for what waits or drops it; nothing is taken any more.
  enum class Waiting { dropped, done };
  void stop(Waiting = Waiting::dropped);
  /// False when too much waits already.
  bool run(std::function<void()> task);

 private:
  void work();

  size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false, finishing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace motet
