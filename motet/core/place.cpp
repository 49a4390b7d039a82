#include "motet/core/place.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "motet/core/error.h"

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
    out.local_size = read.has(l.local_size) ? read.number(l.local_size, out.local_rank + 1, out.size) : out.size;
    break;
  }
  if (out.size == 1) return {};
  const bool nodes = out.launcher == "Slurm" && read.has("SLURM_NODELIST");
  if (!read.has("MASTER_ADDR") && !nodes && out.local_size < out.size)
    fail("MASTER_ADDR is not set and this machine has ", out.local_size, " of ", out.size,
         " processes, want the host of rank 0");
  out.host = read.text_of("MASTER_ADDR", nodes ? first_host(read.text_of("SLURM_NODELIST", "")) : out.host);
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
