#include "motet/core/place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "motet/core/error.h"
#include "motet/core/words.h"

namespace motet {
namespace {

// A launcher's names; of sizes the first that is set counts.
struct Launcher {
  const char* name;
  const char* rank;
  const char* sizes[2];
  const char* local_rank;
  const char* local_size;
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", {"WORLD_SIZE", nullptr}, "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE", nullptr},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {"PMI", "PMI_RANK", {"PMI_SIZE", nullptr}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};

constexpr int64_t kMostProcesses = 1 << 16;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return name && value(name); }
  std::string text_of(const char* name, const std::string& otherwise) const {
    return has(name) ? value(name) : otherwise;
  }
  int64_t number(const char* name, int64_t least, int64_t most) const {
    const char* given = value(name);
    int64_t out = 0;
    const char* end = given + std::strlen(given);
    const auto [stop, error] = std::from_chars(given, end, out);
    if (error != std::errc() || stop != end || out < least || out > most)
      fail(name, " is ", quote(given), ", want a number from ", least, " to ", most);
    return out;
  }

 private:
  const char* value(const char* name) const {
    const char* given = variables_(name);
    return given && *given ? given : nullptr;
  }
  const Variables& variables_;
};

constexpr const char* kTasksOfNodes = "SLURM_STEP_TASKS_PER_NODE";

int64_t count_of(std::string_view digits) {
  int64_t out = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc() && stop == digits.data() + digits.size() ? out : 0;
}

// What Slurm's "2(x3),1" says of a node, counted from 0: 2 of the first three; 0: nothing.
int64_t tasks_of_node(const std::string& list, int64_t node) {
  for (const std::string& entry : split(list, ',')) {
    const size_t bracket = entry.find("(x");
    const bool repeated = bracket != std::string::npos && entry.ends_with(')');
    const int64_t nodes =
        repeated ? count_of(std::string_view(entry).substr(bracket + 2, entry.size() - bracket - 3)) : 1;
    if (node < nodes) return count_of(std::string_view(entry).substr(0, repeated ? bracket : std::string::npos));
    node -= nodes;
  }
  return 0;
}

// How many processes are of this machine. --ntasks-per-node is what was asked for: a step may have fewer.
int64_t local_size_of(const Reader& read, const char* name, const Place& place) {
  const int64_t least = place.local_rank + 1;
  const bool slurm = place.launcher == "Slurm";
  if (slurm && read.has(kTasksOfNodes) && read.has("SLURM_NODEID")) {
    const std::string list = read.text_of(kTasksOfNodes, "");
    const int64_t node = read.number("SLURM_NODEID", 0, kMostProcesses), tasks = tasks_of_node(list, node);
    if (tasks < least || tasks > place.size)
      fail(kTasksOfNodes, " is ", quote(list), ", want from ", least, " to ", place.size, " tasks of node ", node);
    return tasks;
  }
  if (!read.has(name)) return place.size;
  return std::min(read.number(name, least, slurm ? kMostProcesses : place.size), place.size);
}

// Another one for each job, so that two of them on one machine do not meet.
int64_t port_of_job(const Reader& read) {
  constexpr int64_t kFirst = 20000, kPorts = 10000;
  return kFirst + read.number("SLURM_JOB_ID", 0, INT64_MAX) % kPorts;
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

Place place_of(const Variables& variables) {
  const Reader read(variables);
  Place out;
  for (const Launcher& l : kLaunchers) {
    const char* size = read.has(l.sizes[0]) ? l.sizes[0] : read.has(l.sizes[1]) ? l.sizes[1] : nullptr;
    if (!read.has(l.rank)) continue;
    if (!size) fail(l.rank, " is set without ", l.sizes[0], ", want both or neither");
    out.launcher = l.name;
    out.size = read.number(size, 1, kMostProcesses);
    out.rank = read.number(l.rank, 0, out.size - 1);
    out.local_rank = read.has(l.local_rank) ? read.number(l.local_rank, 0, out.size - 1) : out.rank;
    out.local_size = local_size_of(read, l.local_size, out);
    break;
  }
  if (const char* const size = kLaunchers[0].sizes[0];
      out.launcher.empty() && read.has(size) && read.number(size, 1, kMostProcesses) > 1)
    fail(size, " is set without ", kLaunchers[0].rank, ", want both or neither");
  if (out.size == 1) return {};
  const char* list = read.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  const bool nodes = out.launcher == "Slurm" && read.has(list);
  if (!read.has("MASTER_ADDR") && !nodes && out.local_size < out.size)
    fail("MASTER_ADDR is not set and this machine has ", out.local_size, " of ", out.size,
         " processes, want the host of rank 0");
  out.host = read.text_of("MASTER_ADDR", nodes ? first_host(read.text_of(list, "")) : out.host);
  if (read.has("MASTER_PORT"))
    out.port = read.number("MASTER_PORT", 1, 65535);
  else if (out.launcher == "Slurm" && read.has("SLURM_JOB_ID"))
    out.port = port_of_job(read);
  out.served = read.text_of("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  return out;
}

Place this_place() {
  return place_of([](const char* name) { return std::getenv(name); });
}

}  // namespace motet
