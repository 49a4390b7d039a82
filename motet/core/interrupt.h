// Signals that ask a program to end: a flag that long work looks at.
#pragma once
#include <csignal>
#include <iterator>

namespace motet {

// Ctrl-C, what systems send, what batch systems send before that, and what a terminal that closes sends.
inline constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// All of them go to `handler`, with flags of sigaction; but SIGHUP stays ignored where it is (nohup).
void handle_ending_signals(void (*handler)(int signal), int flags = 0);

// From here on the first of them sets the flag, and a second one of the same kind ends the process.
void install_interrupt_handler();

// From here on the next one of any kind ends the process, whatever the first one was.
void let_next_signal_end();

// What a shell reports of a program that this signal ended: 130 for SIGINT, 143 SIGTERM, 138 SIGUSR1, 129 SIGHUP.
constexpr int exit_code_of_signal(int signal) { return 128 + signal; }

// Whether the flag is set. Cheap, callable from any thread.
bool interrupted();

// The signal that set it; 0: none came.
int interrupt_signal();

// Sets the flag as this signal would have: another process of the same work got it.
void interrupt(int signal);

// Clears the flag and waits for the next first signal, where Ctrl-C ends a part of the work alone.
void resume_after_interrupt();

// While one lives a first signal ends the process at once, as one does before the handler is installed: where a library
// waits, and nothing is done yet that could be saved. `says`: with a line, of which one is enough for all processes of
// a work. Constructing it throws Interrupted when the flag is set.
class InterruptEnds {
 public:
  explicit InterruptEnds(bool says);
  ~InterruptEnds();
  InterruptEnds(const InterruptEnds&) = delete;

 private:
  struct sigaction before_[std::size(kEndingSignals)];
};

// Throws Interrupted when the flag is set.
void check_interrupt();

}  // namespace motet
