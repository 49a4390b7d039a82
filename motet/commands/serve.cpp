#include <chrono>
#include <iostream>
#include <thread>

#include "motet/commands/chat_form.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/commands/served_model.h"
#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"
#include "motet/generate/end_tokens.h"
#include "motet/http/server.h"
#include "motet/ops/device.h"
#include "motet/probe/pictures.h"
#include "motet/report/html_data.h"
#include "motet/serve/options.h"
#include "motet/serve/routes.h"

namespace motet {
namespace {

using nlohmann::json;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

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

// What a client without a tokenizer asks for: the names of the tokens that begin and end, and the chat template.
json tokenizer_info(const Companions& companions, const Tokenizer& tokenizer) {
  json info = companion_json(companions, "tokenizer_config.json");
  info.erase("added_tokens_decoder");
  const nlohmann::ordered_json variables = token_variables(companions, tokenizer);
  for (const auto& [name, text] : variables.items()) info[name] = text.get<std::string>();
  const auto jinja = companions.files.find("chat_template.jinja");
  if (jinja != companions.files.end()) info["chat_template"] = jinja->second;
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = tokenizer.name();
  return info;
}

// What the page says of the model, and what it draws.
json about(const std::string& name, ModelImpl& model, int64_t token_bytes, bool chat) {
  const ModelConfig& c = model.config();
  return {{"name", name},
          {"mechanism", c.attention.at("mechanism")},
          {"parameters", Model(c, at::kMeta)->num_parameters()},
          {"layers", c.num_layers()},
          {"heads", c.attention.at("num_heads")},
          {"context", c.context},
          {"token_bytes", token_bytes},
          {"chat", chat}};
}

json drawn_attention(ModelImpl& model, const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  ReportData report;
  for (const int32_t id : ids) {
    StreamDecoder alone(tokenizer);
    report.sample_tokens.push_back(alone.push(id) + alone.flush());
  }
  const std::string mechanism = model.config().attention.at("mechanism");
  report.baseline = mechanism;
  add_pictures(report, mechanism, model, std::vector<int64_t>(ids.begin(), ids.end()), DrawnLayers::all);
  return report_json(report);
}

std::string name_of(const ServeOptions& options, const std::filesystem::path& folder) {
  if (!options.name.empty()) return options.name;
  const auto whole = std::filesystem::weakly_canonical(folder);
  return whole.filename().string();
}

int64_t cache_limit(const ServeOptions& options, at::Device device) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const std::optional<int64_t> free = free_memory(device);
  return free ? *free / 10 * 6 : int64_t{1} << 30;
}

HttpHeaders cors_headers(const std::string& origin) {
  if (origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", origin}, {"Vary", "Origin"}};
}

// The I/O thread; the loop has ended when this is gone.
class Listening {
 public:
  explicit Listening(HttpServer& server) : server_(server), thread_([&server] { server.run(); }) {}
  ~Listening() {
    server_.stop();
    thread_.join();
  }

 private:
  HttpServer& server_;
  std::thread thread_;
};

void wait_for_signal() {
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace

int run_serve(const json& request) {
  const ServeOptions options = read_request(serve_options(), request);
  const HttpLimits limits = read_request(http_limits(), request);
  const SamplingRequest sampling = read_request(sampling_options(), request);
  const std::filesystem::path folder = model_folder(request, "model");
  ApiKeys keys = keys_of(options);
  const int64_t threads = request_threads(request);

  Metrics metrics;
  Routes routes({.others_reach_it = !is_loopback(options.address),
                 .address = options.address,
                 .cors_origin = options.cors_origin},
                std::move(keys), metrics);
  HttpServer server({.address = options.address,
                     .port = static_cast<int>(options.port),
                     .limits = limits,
                     .headers = cors_headers(options.cors_origin),
                     .error_body = [](int status, const std::string& message) { return error_body(status, message); }},
                    [&](HttpRequest&& asked, HttpReply reply) { routes.handle(std::move(asked), reply); });
  const Listening listening(server);
  show(text("http://", options.address.find(':') == std::string::npos ? options.address : "[" + options.address + "]",
            ":", server.port(), "\n"));

  LoadedModel loaded = load_for_inference(folder, sampling);
  if (!loaded.model->config().causal())
    fail_usage(folder.string(), ": the model is not causal, want one whose tokens see only those before them");
  const CacheOptions cache{.type = sampling.cache_type, .compact = sampling.compact_cache};
  BatchModel model(loaded.model, cache, threads);
  const std::string name = name_of(options, folder);
  const std::shared_ptr<const ChatTemplate> form = chat_template(loaded.companions, folder);
  const Served served{.name = name,
                      .tokenizer = *loaded.tokenizer,
                      .context = loaded.model->config().context,
                      .end_tokens = end_tokens(loaded.companions, *loaded.tokenizer),
                      .chat_template = form,
                      .template_variables = token_variables(loaded.companions, *loaded.tokenizer),
                      .tokenizer_info = tokenizer_info(loaded.companions, *loaded.tokenizer),
                      .created = std::time(nullptr),
                      .about = about(name, *loaded.model, model.cache_bytes(1), form != nullptr),
                      .attention = [&](std::span<const int32_t> ids) {
                        return drawn_attention(*loaded.model, *loaded.tokenizer, ids);
                      }};
  const EngineLimits engine_limits{.scheduler = {.batch_tokens = options.batch_tokens,
                                                 .cache_bytes = cache_limit(options, loaded.model->device()),
                                                 .request_seconds = options.request_seconds,
                                                 .prefix_cache = !options.no_prefix_cache},
                                   .queue = options.queue};
  Engine engine(model, *loaded.tokenizer, engine_limits, metrics);
  routes.open(served, engine);
  log_info(text("serves ", served.name, " with a context of ", served.context, " tokens; memory for keys: ",
                engine_limits.scheduler.cache_bytes >> 20, " MiB, ", model.cache_bytes(1), " bytes a token"));
  wait_for_signal();
  routes.drain();
  if (!engine.drain(options.drain_seconds))
    log_warn(text("serve: requests that ran for ", options.drain_seconds, " seconds more were cut off"));
  server.drain();
  for (int i = 0; i < 20 && server.connections() > 0; ++i)  // whose last bytes are on their way
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return 0;
}

}  // namespace motet
