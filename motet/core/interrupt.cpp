#include "motet/core/interrupt.h"

#include <csignal>

#include "motet/core/error.h"

namespace motet {
namespace {

volatile std::sig_atomic_t flag = 0;

void on_signal(int) { flag = 1; }

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // the second signal finds the default action, which ends the process
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void resume_after_interrupt() {
  flag = 0;
  install_interrupt_handler();
}

bool interrupted() { return flag != 0; }

void check_interrupt() {
  if (flag) throw Interrupted("interrupted");
}

}  // namespace motet
