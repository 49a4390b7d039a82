#include "motet/core/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "motet/core/log.h"

namespace motet {
namespace {

using namespace std::chrono_literals;

std::string format(const char* pattern, double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

int terminal_columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  char buffer[48];
  if (whole < 60) {
    std::snprintf(buffer, sizeof buffer, "%llds", static_cast<long long>(whole));
  } else if (whole < 3600) {
    std::snprintf(buffer, sizeof buffer, "%lldm%02llds", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(buffer, sizeof buffer, "%lldh%02lldm", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60));
  }
  return buffer;
}

std::string progress_line(const ProgressState& state, int bar_width) {
  std::string out = state.label;
  const double rate = state.seconds > 0 ? static_cast<double>(state.done - state.begun) / state.seconds : 0;
  if (state.total > 0) {
    const double part = std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0);
    if (bar_width > 0) {
      const int filled = static_cast<int>(part * bar_width);
      out += "  [" + std::string(filled, '#') + std::string(bar_width - filled, '-') + "]";
    }
    out += format("  %.0f%%", std::floor(part * 100)) + " " + std::to_string(state.done) + "/" +
           std::to_string(state.total);
  } else {
    out += "  " + std::to_string(state.done);
  }
  if (rate > 0) {
    out += format(rate < 10 ? "  %.1f/s" : "  %.0f/s", rate);
    const int64_t left = state.total - state.done;
    if (state.total > 0 && left > 0) out += "  " + duration_text(static_cast<double>(left) / rate) + " left";
  }
  return state.suffix.empty() ? out : out + "  " + state.suffix;
}

Progress::Progress(std::string label, int64_t total, int64_t begun)
    : state_{.label = std::move(label), .begun = begun, .total = total},
      quiet_(log_level() < LogLevel::info),
      terminal_(isatty(STDERR_FILENO)),
      start_(Clock::now()),
      last_print_(start_) {}

Progress::~Progress() {
  if (!finished_ && printed_ && terminal_) clear();
}

void Progress::update(int64_t done, const std::string& suffix) {
  const std::lock_guard lock(mutex_);
  state_.done = done;
  state_.suffix = suffix;
  const auto now = Clock::now();
  const auto first = terminal_ ? Clock::duration(2s) : Clock::duration(10s);
  const auto next = terminal_ ? Clock::duration(100ms) : Clock::duration(10s);
  if (quiet_ || finished_ || now - last_print_ < (printed_ ? next : first)) return;
  print(now);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (!quiet_ && !finished_ && printed_) {
    print(Clock::now());
    if (terminal_) std::fputc('\n', stderr);
  }
  finished_ = true;
}

void Progress::print(Clock::time_point now) {
  constexpr int kBarWidth = 24;
  state_.seconds = std::chrono::duration<double>(now - start_).count();
  std::string line = progress_line(state_, terminal_ ? kBarWidth : 0);
  if (terminal_) {
    line.resize(std::min<size_t>(line.size(), terminal_columns() - 1));  // a wrapped line could not be overwritten
    line = "\r" + line + "\x1b[K";
  } else {
    line += "\n";
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
  printed_ = true;
  last_print_ = now;
}

void Progress::clear() { std::fputs("\r\x1b[K", stderr); }

}  // namespace motet
