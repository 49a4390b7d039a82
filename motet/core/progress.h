// Progress of long work on stderr: a bar with rate and time left on a terminal once the work has taken two seconds,
// else a plain line about every ten seconds. Nothing when MOTET_LOG is quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace motet {

// Where the work stands, as one line without line break.
struct ProgressState {
  std::string label;
  int64_t done = 0;
  int64_t begun = 0;  // what was done before its clock began
  int64_t total = 0;  // 0: unknown, then neither bar nor time left
  double seconds = 0;
  std::string suffix = {};  // such as "loss 2.31"
};

// "label  [#####-----]  50% 10/20  5.0/s  2s left  suffix"; without the bar when `bar_width` is 0.
std::string progress_line(const ProgressState& state, int bar_width);

// "8s", "1m05s", "2h03m". Negative counts as 0.
std::string duration_text(double seconds);

// Thread-safe. The destructor clears a bar that was not finished.
class Progress {
 public:
  // `begun`: of `total`, what an earlier process has done.
  Progress(std::string label, int64_t total, int64_t begun = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Prints at most ten times a second, so it may be called at every step.
  void update(int64_t done, const std::string& suffix = {});

  // The last state becomes a line that stays, if anything was printed before. Later calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void print(Clock::time_point now);
  void clear();

  std::mutex mutex_;
  ProgressState state_;
  bool quiet_, terminal_, printed_ = false, finished_ = false;
  Clock::time_point start_, last_print_;
};

}  // namespace motet
