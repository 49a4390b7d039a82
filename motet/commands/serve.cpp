#include <chrono>
#include <csignal>
#include <thread>

#include "motet/commands/commands.h"
#include "motet/commands/model_server.h"
#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

ApiKeys keys_of(const ServeOptions& options) {
  const std::string* variable = environment("MOTET_API_KEY");
  std::vector<std::string> keys;
  if (!options.api_key_file.empty())
    keys = ApiKeys::of_file(options.api_key_file);
  else if (variable)
    keys = {*variable};
  ApiKeys made(std::move(keys));
  if (made.empty() && !is_loopback(options.address))
    fail_usage("--address: ", options.address,
               " can be reached by others, want --api-key-file or MOTET_API_KEY beside it");
  return made;
}

}  // namespace

int run_serve(const nlohmann::json& request) {
  std::signal(SIGPIPE, SIG_IGN);  // who reads its lines may end before it does
  const ServeOptions options = read_request(serve_options(), request);
  const HttpLimits limits = read_request(http_limits(), request);
  const SamplingRequest sampling = read_request(sampling_options(), request);
  const std::filesystem::path folder = model_folder(request, "model");
  const int64_t threads = request_threads(request);
  ModelServer server(options, limits, keys_of(options));
  const bool ipv6 = options.address.find(':') != std::string::npos;
  show(text("http://", ipv6 ? "[" + options.address + "]" : options.address, ":", server.port(), "\n"));
  server.open(folder, load_for_inference(folder, sampling),
              {.type = sampling.cache_type, .compact = sampling.compact_cache}, threads);
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  let_next_signal_end();
  server.drain();
  return 0;
}

}  // namespace motet
