#include "motet/commands/model_server.h"

#include <chrono>

#include "motet/commands/chat_form.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/generate/end_tokens.h"
#include "motet/ops/threads.h"
#include "motet/probe/pictures.h"
#include "motet/report/html_data.h"
#include "motet/text/token_bytes.h"
#include "motet/train/run_checkpoints.h"

namespace motet {
namespace {

using nlohmann::json;

// What a client without a tokenizer asks for: the names of the tokens that begin and end, and the chat template.
json tokenizer_info(const Companions& companions, const Tokenizer& tokenizer) {
  json info = companion_json(companions, "tokenizer_config.json");
  info.erase("added_tokens_decoder");
  const nlohmann::ordered_json variables = token_variables(companions, tokenizer);
  for (const auto& [name, value] : variables.items())
    if (value.is_string()) info[name] = value.get<std::string>();
  const auto jinja = companions.files.find("chat_template.jinja");
  if (jinja != companions.files.end()) info["chat_template"] = jinja->second;
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = tokenizer.name();
  return info;
}

// The chat template, or why there is none: completions want none.
std::pair<std::shared_ptr<const ChatTemplate>, std::string> form_of(const Companions& companions,
                                                                    const std::filesystem::path& folder) {
  try {
    return {chat_template(companions, folder), "the model has no chat template"};
  } catch (const Error& error) {
    log_warn(text("serve: chats are refused: ", error.what()));
    return {nullptr, error.what()};
  }
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

constexpr size_t kDrawnBytes = 16 << 20;  // 128 tokens of 960 pictures

json drawn_attention(ModelImpl& model, const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  ReportData report;
  report.sample_tokens = token_texts(tokenizer, ids);
  const std::string mechanism = model.config().attention.at("mechanism");
  report.baseline = mechanism;
  add_pictures(report, mechanism, model, std::vector<int64_t>(ids.begin(), ids.end()), DrawnLayers::all);
  json drawn = report_json(report, kDrawnBytes);
  end_idle_threads();  // a second pool beside the engine's would put both to sleep between small layers
  return drawn;
}

std::string name_of(const ServeOptions& options, const std::filesystem::path& folder) {
  if (!options.name.empty()) return options.name;
  const auto whole = std::filesystem::weakly_canonical(folder), run = run_of(whole);
  return (run.empty() ? whole : run).filename().string();
}

int64_t cache_limit(const ServeOptions& options, const ModelImpl& model) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const std::optional<int64_t> free = free_memory(model.device());
  return free ? default_cache_bytes(*free, model.mapped_bytes()) : int64_t{1} << 30;
}

HttpHeaders cors_headers(const std::string& origin) {
  if (origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", origin},
          {"Access-Control-Expose-Headers", "Retry-After"},
          {"Vary", "Origin, Access-Control-Request-Headers"}};
}

}  // namespace

int64_t default_cache_bytes(int64_t free, int64_t mapped) { return std::max((free - mapped) / 10 * 6, free / 10); }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

ModelServer::ModelServer(ServeOptions options, const HttpLimits& limits, ApiKeys keys)
    : options_(std::move(options)),
      routes_({.others_reach_it = !is_loopback(options_.address),
               .address = options_.address,
               .cors_origin = options_.cors_origin,
               .logs_requests = !options_.no_request_log},
              std::move(keys), metrics_),
      server_({.address = options_.address,
               .port = static_cast<int>(options_.port),
               .limits = limits,
               .headers = cors_headers(options_.cors_origin),
               .error_body = [](int status, const std::string& message) { return error_body(status, message); }},
              [this](HttpRequest&& asked, HttpReply reply) { routes_.handle(std::move(asked), reply); }),
      io_thread_([this] { server_.run(); }) {}

ModelServer::~ModelServer() {
  routes_.close();
  engine_.reset();  // what still runs is told so, through the connections
  server_.stop();
  io_thread_.join();
}

void ModelServer::open(const std::filesystem::path& folder, LoadedModel loaded, const CacheOptions& cache,
                       int64_t threads) {
  loaded_.emplace(std::move(loaded));
  ModelImpl& model = *loaded_->model;
  if (!model.config().causal())
    fail_usage(folder.string(), ": the model is not causal, want one whose tokens see only those before them");
  model_.emplace(loaded_->model, cache, threads);
  const std::string name = name_of(options_, folder);
  const auto [form, no_template] = form_of(loaded_->companions, folder);
  served_.emplace(Served{.name = name,
                         .tokenizer = *loaded_->tokenizer,
                         .context = model.config().context,
                         .end_tokens = end_tokens(loaded_->companions, *loaded_->tokenizer),
                         .chat_template = form,
                         .no_template = no_template,
                         .template_variables = token_variables(loaded_->companions, *loaded_->tokenizer),
                         .tokenizer_info = tokenizer_info(loaded_->companions, *loaded_->tokenizer),
                         .created = std::time(nullptr),
                         .about = about(name, model, model_->cache_bytes(1), form != nullptr),
                         .attention = [this](std::span<const int32_t> ids) {
                           return drawn_attention(*loaded_->model, *loaded_->tokenizer, ids);
                         }});
  const EngineLimits limits{.scheduler = {.batch_tokens = options_.batch_tokens,
                                          .cache_bytes = cache_limit(options_, model),
                                          .request_seconds = options_.request_seconds,
                                          .prefix_cache = !options_.no_prefix_cache},
                            .queue = options_.queue};
  if (limits.scheduler.cache_bytes < model_->cache_bytes(2))
    fail_usage("--cache-bytes: ", limits.scheduler.cache_bytes, ", want at least the ", model_->cache_bytes(2),
               " of two tokens");
  end_idle_threads();  // the engine's thread has its own
  engine_.emplace(*model_, *loaded_->tokenizer, limits, metrics_);
  routes_.open(*served_, *engine_);
  log_info(text("serves ", name, " with a context of ", served_->context, " tokens; memory for keys: ",
                limits.scheduler.cache_bytes >> 20, " MiB, ", model_->cache_bytes(1), " bytes a token"));
}

void ModelServer::drain() {
  using Clock = std::chrono::steady_clock;
  const auto whole = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.drain_seconds));
  const auto until = Clock::now() + whole;
  routes_.drain();
  if (!engine_->drain(options_.drain_seconds))
    log_warn(text("serve: requests that ran for ", options_.drain_seconds, " seconds more were cut off"));
  routes_.send_answers();
  server_.drain();
  const auto last = std::max(until, Clock::now() + std::chrono::seconds(1));
  while (server_.connections() > 0 && Clock::now() < last)  // whose last bytes are on their way
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace motet
