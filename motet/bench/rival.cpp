#include "motet/bench/rival.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceSeconds = 900;  // for one answer; a rival that compiles itself takes minutes

// The environment with other values of some variables.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view given = *entry;
    const auto same_name = [&](const std::string& change) {
      return given.starts_with(change.substr(0, change.find('=') + 1));
    };
    if (std::none_of(changes.begin(), changes.end(), same_name)) all.emplace_back(given);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& s : strings) all.push_back(s.data());
  all.push_back(nullptr);
  return all;
}

// Starts `python script` with both standard streams on `socket`; stderr stays ours.
pid_t start(const RivalProgram& program, int socket, int64_t threads, bool retain_heap) {
  std::vector<std::string> words{program.python, program.script};
  std::vector<std::string> changes{text("OMP_NUM_THREADS=", threads)};
  if (retain_heap) {  // freed tensors stay in the process: what a rival that materialises gains most from
    changes.emplace_back("MALLOC_MMAP_THRESHOLD_=4294967296");
    changes.emplace_back("MALLOC_TRIM_THRESHOLD_=68719476736");
  }
  if (!std::getenv("OMP_WAIT_POLICY")) changes.emplace_back("OMP_WAIT_POLICY=passive");  // as the front does for us
  std::vector<std::string> environment = environment_with(changes);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t process = -1;
  const int error = ::posix_spawnp(&process, words[0].c_str(), &files, &attributes, pointers(words).data(),
                                   pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error) fail("cannot start ", quote(program.python), ": ", std::strerror(error));
  return process;
}

}  // namespace

RivalProgram find_rival(const std::string& name, const std::string& python) {
  std::error_code error;
  const fs::path here = fs::current_path();
  for (fs::path folder = here;; folder = folder.parent_path()) {
    const fs::path script = folder / "bench" / name;
    if (fs::exists(script, error)) {
      const fs::path own = folder / ".venv" / "bin" / "python";
      if (python.empty() && !fs::exists(own, error))
        fail(own.string(),
             " does not exist, want it (scripts/bootstrap makes it) or --python PATH of a Python that has torch");
      return {python.empty() ? own.string() : python, script.string()};
    }
    if (folder == folder.parent_path()) break;
  }
  fail("bench/", name, " is neither in ", quote(here.string()), " nor above it, want to be run in Motet's source tree");
}

RivalProcess::RivalProcess(const RivalProgram& program, const nlohmann::json& request) : program_(program) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail("cannot make a socket: ", std::strerror(errno));
  socket_ = pair[0];
  try {
    process_ = start(program, pair[1], request.at("threads").get<int64_t>(), request.value("retain_heap", false));
    ::close(pair[1]);
    pair[1] = -1;
    send(request.dump());
    facts_ = answer();
  } catch (...) {
    if (pair[1] >= 0) ::close(pair[1]);
    end();
    throw;
  }
}

RivalProcess::~RivalProcess() { end(); }

// It holds nothing worth saving; the end of its input alone would wait for the step under way.
void RivalProcess::end() {
  if (socket_ >= 0) ::close(socket_);
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  socket_ = process_ = -1;
}

void RivalProcess::send(const std::string& line) {
  const std::string bytes = line + "\n";
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(program_.script, ": the process ended: ", std::strerror(errno));
    sent += static_cast<size_t>(n);
  }
}

std::string RivalProcess::line() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  for (size_t stop; (stop = received_.find('\n')) == std::string::npos;) {
    check_interrupt();
    if (std::chrono::steady_clock::now() > end) fail(program_.script, ": no answer in ", kPatienceSeconds, " seconds");
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, 200) <= 0) continue;
    char bytes[4096];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(program_.script, ": the process ended without an answer; its own message stands above");
    received_.append(bytes, static_cast<size_t>(n));
  }
  const size_t stop = received_.find('\n');
  const std::string line = received_.substr(0, stop);
  received_.erase(0, stop + 1);
  return line;
}

nlohmann::json RivalProcess::answer() {
  const std::string given = line();
  nlohmann::json fields = nlohmann::json::parse(given, nullptr, false);
  if (!fields.is_object()) fail(program_.script, ": answered ", quote(given), ", want one JSON object");
  if (fields.contains("error"))
    fail(program_.script, ": ",
         fields["error"].is_string() ? fields["error"].get<std::string>() : fields["error"].dump());
  return fields;
}

Time RivalProcess::step(const std::string& what) {
  send(what.empty() ? "step" : "step " + what);
  const nlohmann::json fields = answer();
  const auto number = [&](const char* name) {
    const auto found = fields.find(name);
    if (found == fields.end() || !found->is_number())
      fail(program_.script, ": the answer to a step has no number ", name);
    return found->get<double>();
  };
  return {number("seconds"), number("cpu_seconds")};
}

}  // namespace motet
