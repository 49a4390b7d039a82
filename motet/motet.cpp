#include "motet/motet.h"

#include <iostream>
#include <map>

#include "motet/commands/commands.h"
#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/formats/json.h"
#include "motet/ops/failure.h"
#include "motet/ops/table.h"
#include "motet/processes/processes.h"

namespace motet {
namespace {

using Command = int (*)(const nlohmann::json&);

int run(const std::string& subcommand, const std::string& request) {
  static const std::map<std::string, Command> commands{
      {"compare", run_compare},       {"train", run_train},       {"eval", run_eval},
      {"generate", run_generate},     {"chat", run_chat},         {"convert", run_convert},
      {"inspect", run_inspect},       {"doctor", run_doctor},     {"bench", run_bench},
      {"verify", run_verify},         {"tokenize", run_tokenize}, {"data", run_data},
      {"experiment", run_experiment}, {"serve", run_serve}};
  const auto found = commands.find(subcommand);
  if (found == commands.end()) fail_usage("unknown subcommand ", quote(subcommand));
  if (const std::string* kernels = environment("MOTET_KERNEL")) check_kernel_choice(*kernels);
  install_interrupt_handler();
  const int code = found->second(parse_json(request, "request"));
  if (!std::cout.flush()) fail("cannot write the results to standard output");
  return code;
}

int failed(const std::string& message, int code) {
  std::cerr << "motet: " << message << std::endl;
  return code;
}

}  // namespace
}  // namespace motet

int motet_run(const char* subcommand, const char* request_json) {
  using namespace motet;
  try {
    return run(subcommand, request_json);
  } catch (const ToldElsewhere& e) {
    return e.exit_code();
  } catch (const Error& e) {
    return failed(e.what(), e.exit_code());
  } catch (const std::exception& e) {
    return failed(told(e), 1);
  }
}
