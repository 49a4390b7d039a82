#include "motet/core/interrupt.h"

#include <csignal>

#include "motet/core/error.h"

namespace motet {
namespace {

volatile std::sig_atomic_t flag = 0;  // the signal; 0: none came

void on_signal(int signal) { flag = signal; }

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // the second signal finds the default action, which ends the process
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
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
