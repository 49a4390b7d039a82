// A rival program (bench/*.py) as a resident process that does one step for each line it reads. Protocol:
// bench/README.md.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

#include "motet/bench/timing.h"

namespace motet {

struct RivalProgram {
  std::string python, script;
};

/// bench/<name> in the current folder or one above it, and the Python to run it: `python`, or .venv/bin/python beside
/// it when `python` is empty. Throws Error when either is missing.
RivalProgram find_rival(const std::string& name, const std::string& python);

/// Starts the program in a process group of its own, so that Ctrl-C reaches only us; the destructor ends it.
class RivalProcess {
 public:
  /// Sends `request`, whose "threads" also becomes the child's OMP_NUM_THREADS; with "retain_heap" its heap keeps what
  /// is freed. Throws Error with the rival's own message.
  RivalProcess(const RivalProgram&, const nlohmann::json& request);
  ~RivalProcess();
  RivalProcess(const RivalProcess&) = delete;

  /// What it answered to the request.
  const nlohmann::json& facts() const { return facts_; }

  /// One step, of the kind `what` where the program has several: its own measurement. Throws Interrupted on Ctrl-C,
  /// Error when the process fails or says nothing for minutes.
  Time step(const std::string& what = "");

 private:
  void send(const std::string& line);
  nlohmann::json answer();
  std::string line();
  void end();

  RivalProgram program_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string received_;
  nlohmann::json facts_;
};

}  // namespace motet
