#include "motet/core/interrupt.h"

#include <unistd.h>

#include "motet/core/error.h"

namespace motet {
namespace {

volatile std::sig_atomic_t flag = 0;  // the signal; 0: none came

void on_signal(int signal) { flag = signal; }

void end_on_signal(int signal) { ::_exit(exit_code_of_signal(signal)); }

void say_and_end_on_signal(int signal) {
  constexpr char said[] = "motet: interrupted\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, said, sizeof said - 1);
  end_on_signal(signal);
}

}  // namespace

void handle_ending_signals(void (*handler)(int signal), int flags) {
  for (const int signal : kEndingSignals) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = handler, action.sa_flags = flags;
    sigaction(signal, &action, nullptr);
  }
}

// The second signal finds the default action, which ends the process.
void install_interrupt_handler() { handle_ending_signals(on_signal, SA_RESETHAND); }

void let_next_signal_end() { handle_ending_signals(end_on_signal); }

InterruptEnds::InterruptEnds(bool says) {
  check_interrupt();
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) sigaction(kEndingSignals[i], nullptr, &before_[i]);
  handle_ending_signals(says ? say_and_end_on_signal : end_on_signal);
}

InterruptEnds::~InterruptEnds() {
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) sigaction(kEndingSignals[i], &before_[i], nullptr);
}

void resume_after_interrupt() {
  flag = 0;
  install_interrupt_handler();
}

bool interrupted() { return flag != 0; }

int interrupt_signal() { return static_cast<int>(flag); }

void interrupt(int signal) { flag = signal; }

int Interrupted::exit_code() const { return exit_code_of_signal(flag ? static_cast<int>(flag) : SIGINT); }

void check_interrupt() {
  if (flag) throw Interrupted("interrupted");
}

}  // namespace motet
