#include "apps/motet/launch.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <system_error>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(50);
// After a failure, until those that still run are ended: more than a watch takes to notice it, for the news to be taken
// and to be told (motet/processes/watch.h).
constexpr auto kPatience = std::chrono::seconds(15);

volatile std::sig_atomic_t received = 0;
void on_signal(int signal) { received = signal; }

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  if (!bound) fail("--processes: no port is free: ", std::generic_category().message(errno));
  return ntohs(address.sin_port);
}

struct Child {
  pid_t pid = 0;
  int code = -1;         // -1: it runs
  bool stopped = false;  // by SIGSTOP
};

class Launch {
 public:
  Launch(int64_t processes, const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) values_.push_back(const_cast<char*>(argument.c_str()));
    values_.push_back(nullptr);
    const int port = free_port();
    for (int64_t rank = 0; rank < processes; ++rank) start(rank, processes, port);
  }

  int wait() {
    while (running()) {
      if (const int signal = received) {
        received = 0;
        send(signal);
      }
      reap();
      if (first_failure_ != 0 && !ends_others_ && Clock::now() - failed_ > kPatience) end_others();
      for (const Child& child : children_)
        if (first_failure_ != 0 && child.code < 0 && child.stopped) ::kill(child.pid, SIGKILL);
      std::this_thread::sleep_for(kLook);
    }
    if (children_[0].code != 0 && !ends_others_) return children_[0].code;
    return first_failure_;
  }

 private:
  void start(int64_t rank, int64_t size, int port) {
    const pid_t parent = ::getpid(), pid = ::fork();
    if (pid < 0) {
      send(SIGKILL);
      fail("--processes: cannot start one: ", std::generic_category().message(errno));
    }
    if (pid > 0) {
      children_.push_back({.pid = pid});
      return;
    }
    ::setpgid(0, 0);  // Ctrl-C comes to the parent alone, which sends it on once
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank)), set("LOCAL_RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(size)), set("LOCAL_WORLD_SIZE", std::to_string(size));
    set("MASTER_ADDR", "127.0.0.1"), set("MASTER_PORT", std::to_string(port));
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    ::execv("/proc/self/exe", values_.data());
    ::_exit(127);
  }

  bool running() const {
    return std::ranges::any_of(children_, [](const Child& c) { return c.code < 0; });
  }

  void send(int signal) const {
    for (const Child& child : children_)
      if (child.code < 0) ::kill(child.pid, signal);
  }

  // They have not met who failed, and would wait for it. One that still saves what it has does that to its end.
  void end_others() {
    ends_others_ = true;
    std::cerr << "motet: a process ended with exit code " << first_failure_
              << " and others still run, which are ended too\n";
    send(SIGTERM);
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      if (child.code >= 0) continue;
      const pid_t changed = ::waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
      const bool known = changed == child.pid;
      if (!known && !(changed < 0 && errno == ECHILD)) continue;  // ECHILD: it has ended, and nobody says how
      child.stopped = known && WIFSTOPPED(status);
      if (child.stopped || (known && WIFCONTINUED(status))) continue;
      child.code = !known ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of_signal(WTERMSIG(status));
      if (child.code != 0 && first_failure_ == 0) first_failure_ = child.code, failed_ = Clock::now();
    }
  }

  std::vector<char*> values_;
  std::vector<Child> children_;
  int first_failure_ = 0;
  Clock::time_point failed_;  // when that was seen
  bool ends_others_ = false;
};

}  // namespace

int launch(int64_t processes, const std::vector<std::string>& arguments) {
  handle_ending_signals(on_signal);
  std::signal(SIGCHLD, SIG_DFL);  // who ignores it is not told how children ended, and what starts this may
  return Launch(processes, arguments).wait();
}

}  // namespace motet
