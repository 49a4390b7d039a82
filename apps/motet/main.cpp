#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "apps/motet/cli.h"
#include "apps/motet/engine.h"
#include "apps/motet/launch.h"
#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"
#include "motet/core/options.h"
#include "motet/core/place.h"
#include "motet/core/process.h"
#include "motet/core/shell.h"
#include "motet/core/utf8.h"
#include "motet/core/version.h"

namespace motet {
namespace {

std::string command_line(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& argument : arguments) out += (out.empty() ? "" : " ") + shell_quoted(argument);
  return out;
}

// LibTorch reads these when it is loaded. Threads that sleep at once make small layers slower; those that spin for
// long, the default, make another process slower: two trainings at once took 9 times one of them, 4 times with 5000.
void set_openmp(const nlohmann::json& request) {
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  ::setenv("GOMP_SPINCOUNT", "5000", 0);
  if (request.contains("threads")) ::setenv("OMP_NUM_THREADS", request["threads"].dump().c_str(), 0);
}

// --processes of a training or of its benchmark, unless it is only planned: 0 when this process is the one that trains,
// and when the engine is to refuse the number.
int64_t processes_to_launch(const nlohmann::json& request, const Place& place) {
  const std::string given = request.value("processes", "");
  int64_t count = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), count);
  if (error != std::errc() || end != given.data() + given.size() || count > 65536 || request.value("dry_run", false))
    return 0;
  if (count > 0 && place.size > 1 && count != place.size)
    fail_usage("--processes: ", count, " inside ", place.launcher, ", which started ", place.size,
               " already, want it left out");
  return count > 1 && place.size == 1 ? count : 0;  // those that are launched so have the same flag
}

// --threads, else MOTET_THREADS, as a number; absent when neither is given and the machine is this process's alone.
void resolve_threads(nlohmann::json& request, const Place& place) {
  const Option option = {
      .name = "threads", .type = OptionType::integer, .default_value = nullptr, .min = 1, .max = 4096};
  const std::string* variable = environment("MOTET_THREADS");
  if (request.contains("threads")) {
    request["threads"] = checked(option, request["threads"], "--threads");
  } else if (variable) {
    request["threads"] = checked(option, *variable, "MOTET_THREADS");
  } else if (place.local_size > 1) {
    request["threads"] = std::max<int64_t>(1, processor_count() / place.local_size);
  }
}

// Refuses a word that is not UTF-8, in a list too.
void check_utf8(const Subcommand& subcommand, const nlohmann::json& value) {
  if (value.is_array())
    for (const nlohmann::json& each : value) check_utf8(subcommand, each);
  if (value.is_string() && utf8_invalid_at(value.get_ref<const std::string&>()) != std::string::npos)
    fail_usage(subcommand.name, ": ", quote(value.get<std::string>()), " is not UTF-8, want text that is");
}

// A text may hold any bytes, of which those that are no UTF-8 become U+FFFD. A path would become another one.
void check_names(const Subcommand& subcommand, const nlohmann::json& request) {
  static const std::set<std::string> free_texts{"prompt", "stop", "system"};
  for (const auto& [field, value] : request.items())
    if (!free_texts.contains(field)) check_utf8(subcommand, value);
}

int run(const std::vector<std::string>& arguments) {
  const std::string& program = arguments[0];
  const std::string first = arguments.size() > 1 ? arguments[1] : "";
  if (first == "-h" || first == "--help") {
    std::fputs(program_help(program).c_str(), stdout);
    return 0;
  }
  if (first == "-v" || first == "--version") {
    std::printf("motet %s\n", kVersion);
    return 0;
  }
  if (arguments.size() < 2) fail_usage("no subcommand is given; see motet --help");
  if (first.starts_with('-')) fail_usage("unknown flag ", quote(first), " before the subcommand; see motet --help");
  const Subcommand& subcommand = find_subcommand(first);
  Request request = parse_arguments(subcommand, {arguments.begin() + 2, arguments.end()});
  if (request.help) {
    std::fputs(subcommand_help(subcommand, program).c_str(), stdout);
    return 0;
  }
  check_names(subcommand, request.json);
  const bool together = subcommand.name == "train" || request.json.value("what", "") == "processes";
  const Place place = together ? this_place() : Place{};
  if (place.rank > 0) ::setenv("MOTET_LOG", "quiet", 0);  // the first one tells what all do
  if (place.size > 1) ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  log_level();  // refuses a wrong MOTET_LOG now, not in the first line that is logged
  for (const std::string& warning : environment_warnings()) log_warn(warning);
  const int64_t count = together ? processes_to_launch(request.json, place) : 0;
  resolve_threads(request.json, place);  // a wrong number is refused once, and not by each process
  if (count > 0) return launch(count, arguments);
  if (request.json.contains("json")) request.json["output"] = "json";
  request.json.erase("json");
  request.json["command"] = command_line(arguments);
  request.json["color"] = color_allowed(STDOUT_FILENO);
  set_openmp(request.json);
  using nlohmann::json;
  return run_engine(subcommand.name, request.json.dump(-1, ' ', false, json::error_handler_t::replace));
}

// Until the library takes over there is nothing to tidy up.
void on_early_interrupt(int signal) { ::_exit(exit_code_of_signal(signal)); }

}  // namespace
}  // namespace motet

int main(int count, char** values) {
  motet::handle_ending_signals(motet::on_early_interrupt);
  int code;
  try {
    code = motet::run({values, values + count});
  } catch (const motet::Error& error) {
    std::fprintf(stderr, "motet: %s\n", error.what());
    code = error.exit_code();
  }
  if (std::fflush(stdout) != 0) {
    std::perror("motet: cannot write the results");
    code = 1;
  }
  std::_Exit(code);  // nothing takes apart what torch registered as it was loaded, a seventh of a short command
}
