#include "motet/core/interrupt.h"

#include <unistd.h>

#include <iterator>

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

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // the second signal finds the default action, which ends the process
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

void let_next_signal_end() {
  for (const int signal : kSignals) std::signal(signal, end_on_signal);
}

InterruptEnds::InterruptEnds(bool says) {
  check_interrupt();
  struct sigaction action = {};
  action.sa_handler = says ? say_and_end_on_signal : end_on_signal;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

InterruptEnds::~InterruptEnds() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
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
