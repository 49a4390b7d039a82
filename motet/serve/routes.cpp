#include "motet/serve/routes.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/core/version.h"
#include "motet/core/words.h"
#include "motet/serve/page/page_assets.h"
#include "motet/serve/token_places.h"

namespace motet {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostQueued = 256;    // requests that wait for a worker
constexpr size_t kMostDrawn = 16;      // and texts whose attention is to be drawn
constexpr int64_t kChatTokens = 1024;  // of an answer whose length nobody gave
constexpr int64_t kTextTokens = 16;
constexpr int64_t kDrawnTokens = 128;      // of the text whose attention is drawn
constexpr size_t kMostIds = 1 << 18;       // that are made a text
constexpr size_t kMostEchoed = 1 << 24;    // bytes of prompts in an answer
constexpr size_t kLargeBody = 1 << 16;     // bytes of a request that holds no smaller one up
constexpr int64_t kAnyTokens = 1LL << 32;  // more than a text can have
constexpr const char* kModelPath = "/v1/models/";

// What stands in Host or behind an origin's scheme, without its port.
std::string_view host_name(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : std::string_view::npos;
  if (bracket != std::string_view::npos) return host.substr(0, bracket + 1);
  return host.substr(0, host.find(':'));
}

bool loopback_name(std::string_view name) {
  return same_word(name, "localhost") || name == "127.0.0.1" || name == "[::1]";
}

// As browsers write the header Origin, with which it is compared: scheme://host[:port] in small letters.
bool is_origin(std::string_view origin) {
  const auto all_of = [](std::string_view text, std::string_view marks) {
    return !text.empty() && std::ranges::all_of(text, [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || marks.find(c) != std::string_view::npos;
    });
  };
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || !all_of(origin.substr(0, scheme), "+-.")) return false;
  const std::string_view rest = origin.substr(scheme + 3), name = host_name(rest), port = rest.substr(name.size());
  const bool v6 = name.starts_with('[') && name.ends_with(']');
  if (!(v6 ? all_of(name.substr(1, name.size() - 2), ":.") : all_of(name, "-._"))) return false;
  return port.empty() || (port.starts_with(':') && port.size() > 1 && port.size() <= 6 &&
                          port.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Nothing of another origin is run, shown or asked by the page.
void send_page(HttpReply& reply, const std::string& type, std::string_view body) {
  reply.send(200, type + "; charset=utf-8", std::string(body),
             {{"Content-Security-Policy",
               "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
              {"X-Content-Type-Options", "nosniff"},
              {"Referrer-Policy", "no-referrer"},
              {"Cache-Control", "no-cache"}});
}

std::string joined_names(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(quote(name));
  return joined(quoted);
}

bool leads_to(std::string_view route, std::string_view path) {
  const bool with_name = route.size() > 1 && route.ends_with('/');
  return with_name ? path.size() > route.size() && path.starts_with(route) : path == route;
}

json entry(const Served& served) {
  return {{"id", served.name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "motet"},
          {"max_model_len", served.context}};
}

void check_model(const Served& served, std::string_view asked) {
  if (asked != served.name)
    throw Refused(404, text("model: ", quote(asked), " is not served, want ", quote(served.name)), "model");
}

// What a body names; empty or null asks for the one that is there.
void check_model_of(const Served& served, const json& body) {
  const json asked = body.value("model", json());
  if (!asked.is_null() && !asked.is_string()) throw Refused(400, "model: want a name", "model");
  if (asked.is_string() && asked != "") check_model(served, asked.get_ref<const std::string&>());
}

// What takes longer than a step of the engine is written by a worker.
bool is_large(int64_t told_logprobs, size_t echoed_bytes) { return told_logprobs > 1 << 13 || echoed_bytes > 1 << 18; }

// How many logarithmic probabilities an answer tells at most, of its prompts and in all.
struct Told {
  int64_t prompts = 0, all = 0;
};
Told told_logprobs(const std::vector<Job>& jobs) {
  Told told;
  for (const Job& job : jobs) {
    const int64_t scored = job.score_prompt ? static_cast<int64_t>(job.prompt.size()) : 0,
                  each = job.samples * (1 + job.writer.logprobs);
    told.prompts += scored * each, told.all += (scored + job.max_tokens) * each;
  }
  return told;
}

}  // namespace

struct Routes::Route {
  const char *method, *path;  // beside "/", a path that ends in '/' has a name behind it
  bool open;                  // to everybody, without a key
  bool needs_model;           // 503 until it is loaded
  Workers Routes::* worker;   // null: done at once, by the thread of all connections
  void (*run)(Routes&, const HttpRequest&, HttpReply, const std::string& owner);
};

const std::vector<Routes::Route>& Routes::table() {
  using Q = const HttpRequest&;
  using Owner = const std::string&;
  static const std::vector<Route> all{
      {"GET", "/", true, false, nullptr,
       [](Routes&, Q, HttpReply reply, Owner) { send_page(reply, "text/html", page_html()); }},
      {"GET", "/page.css", true, false, nullptr,
       [](Routes&, Q, HttpReply reply, Owner) { send_page(reply, "text/css", page_style()); }},
      {"GET", "/page.js", true, false, nullptr,
       [](Routes&, Q, HttpReply reply, Owner) { send_page(reply, "text/javascript", page_script()); }},
      {"GET", "/health", true, false, nullptr, [](Routes& r, Q, HttpReply reply, Owner) { r.health(reply); }},
      {"GET", "/version", true, false, nullptr,
       [](Routes& r, Q, HttpReply reply, Owner) { r.send(reply, {{"version", kVersion}}); }},
      {"GET", "/metrics", false, false, nullptr,
       [](Routes& r, Q, HttpReply reply, Owner) {
         reply.send(200, "text/plain; version=0.0.4; charset=utf-8", r.metrics_.text());
       }},
      {"GET", "/v1/models", false, true, nullptr, [](Routes& r, Q, HttpReply reply, Owner) { r.models(reply); }},
      {"GET", kModelPath, false, true, nullptr, [](Routes& r, Q q, HttpReply reply, Owner) { r.model(q, reply); }},
      {"GET", "/tokenizer_info", false, true, nullptr,
       [](Routes& r, Q, HttpReply reply, Owner) { r.send(reply, r.served_.load()->tokenizer_info); }},
      {"GET", "/motet/model", false, true, nullptr,
       [](Routes& r, Q, HttpReply reply, Owner) { r.send(reply, r.served_.load()->about); }},
      {"POST", "/motet/attention", false, true, &Routes::drawings_,
       [](Routes& r, Q q, HttpReply reply, Owner) { r.attention(q, reply); }},
      {"POST", "/tokenize", false, true, &Routes::workers_,
       [](Routes& r, Q q, HttpReply reply, Owner) { r.tokenize(q, reply); }},
      {"POST", "/detokenize", false, true, &Routes::workers_,
       [](Routes& r, Q q, HttpReply reply, Owner) { r.detokenize(q, reply); }},
      {"POST", "/v1/completions", false, true, &Routes::workers_,
       [](Routes& r, Q q, HttpReply reply, Owner owner) { r.complete(q, reply, owner, false); }},
      {"POST", "/v1/chat/completions", false, true, &Routes::workers_,
       [](Routes& r, Q q, HttpReply reply, Owner owner) { r.complete(q, reply, owner, true); }}};
  return all;
}

Routes::Routes(RouteOptions options, ApiKeys keys, Metrics& metrics)
    : options_(std::move(options)),
      keys_(std::move(keys)),
      metrics_(metrics),
      workers_(1, kMostQueued),
      large_(1, kMostQueued),
      answers_(1, kMostQueued),
      drawings_(1, kMostDrawn) {
  const std::string& origin = options_.cors_origin;
  if (!origin.empty() && origin != "*" && origin != "null" && !is_origin(origin))
    fail_usage("--cors-origin: ", quote(origin), ", want *, null or scheme://host[:port] in small letters");
}

Routes::~Routes() = default;

void Routes::close() {
  drain();
  workers_.stop();
  large_.stop();
  answers_.stop();
  drawings_.stop();
}

void Routes::open(const Served& served, Engine& engine) {
  engine_ = &engine;
  served_ = &served;
}

// A page of another origin may not use a visitor's browser to ask a server that only this machine reaches, be it by its
// address or by a name that resolves to it (DNS rebinding).
void Routes::check_origin(const HttpRequest& request) const {
  const std::string_view host = request.header("host").value_or(""), name = host_name(host);
  if (!options_.others_reach_it && !name.empty() && !loopback_name(name) && !same_word(name, options_.address))
    throw Refused(403, text("the Host ", quote(name), " is not this server, want localhost"));
  const auto origin = request.header("origin");
  if (!origin || options_.cors_origin == "*" || *origin == options_.cors_origin) return;
  const size_t scheme = origin->find("://");
  if (scheme == std::string_view::npos || !same_word(origin->substr(scheme + 3), host))
    throw Refused(403, text("the origin ", quote(*origin), " may not ask, want --cors-origin to name it"));
}

void Routes::handle(HttpRequest&& request, HttpReply reply) {
  try {
    check_origin(request);
    if (request.method == "OPTIONS" && !options_.cors_origin.empty())
      return reply.send(
          204, "text/plain", "",
          {{"Access-Control-Allow-Methods", "GET, POST"},
           {"Access-Control-Allow-Headers",
            std::string(request.header("access-control-request-headers").value_or("Authorization, Content-Type"))}});
    const std::string method = request.method == "HEAD" ? "GET" : request.method;
    std::string allowed;
    for (const Route& route : table()) {
      if (!leads_to(route.path, request.path)) continue;
      if (method == route.method) {
        const std::optional<std::string> owner = keys_.owner(request.header("authorization"));
        if (!route.open && !owner)
          return refuse(reply, route.path, {401, "the API key is wrong or missing, want Authorization: Bearer KEY"},
                        {{"WWW-Authenticate", "Bearer"}});
        return answer(route, std::move(request), reply, owner.value_or(""));
      }
      allowed = route.method;
    }
    if (!allowed.empty())
      return refuse(reply, quote(request.path),
                    {405, text(quote(request.path), " takes ", allowed, ", not ", quote(request.method))},
                    {{"Allow", allowed}});
    throw Refused(404, text("there is no ", quote(request.path), " here"));
  } catch (const Refused& refused) {
    refuse(reply, quote(request.path), refused);
  }
}

void Routes::refuse(HttpReply& reply, const std::string& route, const Refused& refused, HttpHeaders headers) const {
  const std::string& field = refused.field();
  if (options_.logs_requests)
    log_info(text("serve: ", route, ": refused with ", refused.status(), field.empty() ? "" : " for ", field));
  if (refused.status() == 429) headers.emplace_back("Retry-After", "1");
  reply.send(refused.status(), "application/json", error_body(refused.status(), refused.what(), field),
             std::move(headers));
}

void Routes::answer(const Route& route, HttpRequest&& request, HttpReply reply, const std::string& owner) {
  if (route.needs_model && (!served_.load() || draining_))
    throw Refused(503, draining_ ? "the server is about to stop" : "the model is being loaded");
  if (std::string_view(route.method) == "POST") {
    const std::string_view type = request.header("content-type").value_or("application/json");
    if (!same_word(type.substr(0, std::min(type.find_first_of("; \t"), type.size())), "application/json"))
      throw Refused(415, text("the body is ", quote(type), ", want application/json"));
    const std::string_view coding = request.header("content-encoding").value_or("identity");
    if (!same_word(coding, "identity"))
      throw Refused(415, text("the Content-Encoding is ", quote(coding), ", want the body as it is"));
  }
  const auto run = [this, &route, owner](const HttpRequest& request, HttpReply reply) {
    try {
      route.run(*this, request, reply, owner);
    } catch (const Refused& refused) {
      refuse(reply, route.path, refused);
    } catch (const std::exception& error) {
      const std::string why = first_line(error.what());
      log_warn(text("serve: ", route.path, ": ", why));
      reply.send(500, "application/json", error_body(500, why));
    }
  };
  if (!route.worker) return run(request, reply);
  const auto shared = std::make_shared<const HttpRequest>(std::move(request));
  const bool large = route.worker == &Routes::workers_ && shared->body.size() > kLargeBody;
  if (!(large ? large_ : this->*route.worker).run([run, shared, reply] { run(*shared, reply); }))
    refuse(reply, route.path, {429, "too many requests wait to be read, want this one later"});
}

void Routes::send(HttpReply& reply, const json& body) const {
  reply.send(200, "application/json", body.dump(-1, ' ', false, json::error_handler_t::replace));
}

void Routes::health(HttpReply reply) const {
  if (served_.load() && !draining_) return send(reply, {{"status", "ok"}});
  reply.send(503, "application/json",
             error_body(503, draining_ ? "the server is about to stop" : "the model is being loaded"));
}

void Routes::models(HttpReply reply) const {
  send(reply, {{"object", "list"}, {"data", json::array({entry(*served_.load())})}});
}

void Routes::model(const HttpRequest& request, HttpReply reply) const {
  const Served& served = *served_.load();
  check_model(served, std::string_view(request.path).substr(std::string_view(kModelPath).size()));
  send(reply, entry(served));
}

void Routes::attention(const HttpRequest& request, HttpReply reply) const {
  const Served& served = *served_.load();
  const json text = read_body(request.body).value("text", json());
  if (!text.is_string() || text.get_ref<const std::string&>().empty()) throw Refused(400, "text: want a text", "text");
  const int64_t most = std::min(kDrawnTokens, served.context);
  std::vector<int32_t> ids = encoded(text.get<std::string>(), "text", most);
  put_before(served.tokenizer, ids);
  if (ids.size() > static_cast<size_t>(most))
    throw Refused(400, motet::text("text: ", ids.size(), " tokens, want at most ", most), "text");
  send(reply, served.attention(ids));
}

// As vLLM has them, for clients that have no tokenizer of their own.
void Routes::tokenize(const HttpRequest& request, HttpReply reply) {
  const Served& served = *served_.load();
  const json body = read_body(request.body), prompt = body.value("prompt", json()),
             messages = body.value("messages", json());
  check_model_of(served, body);
  const auto flag = [&](const char* name, bool without) {
    const json value = body.value(name, json());
    if (!value.is_null() && !value.is_boolean()) throw Refused(400, text(name, ": want true or false"), name);
    return value.is_null() ? without : value.get<bool>();
  };
  const bool generation = flag("add_generation_prompt", true), special = flag("add_special_tokens", messages.is_null());
  std::vector<std::string> unknown;
  note_unknown(body, "", {"model", "prompt", "messages", "add_generation_prompt", "add_special_tokens"}, unknown);
  std::vector<int32_t> ids;
  if (!messages.is_null()) {
    const json chat{{"messages", messages}};
    const CompletionRequest asked = read_completion(chat.dump(), true, served.tokenizer.vocabulary_size());
    unknown.insert(unknown.end(), asked.unknown.begin(), asked.unknown.end());
    ids = chat_prompt(asked.messages, generation, kAnyTokens);
  } else {
    if (!prompt.is_string()) throw Refused(400, "prompt: want a text", "prompt");
    ids = encoded(prompt.get<std::string>(), "prompt", kAnyTokens);
  }
  if (special) put_before(served.tokenizer, ids);
  warn_of_unknown(unknown);
  send(reply, {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", served.context}});
}

void Routes::detokenize(const HttpRequest& request, HttpReply reply) {
  const Served& served = *served_.load();
  const Tokenizer& tokenizer = served.tokenizer;
  const json body = read_body(request.body);
  check_model_of(served, body);
  const std::vector<int32_t> ids = read_ids(body.value("tokens", json()), tokenizer.vocabulary_size(), "tokens");
  if (ids.size() > kMostIds) throw Refused(400, text("tokens: ", ids.size(), ", want at most ", kMostIds), "tokens");
  std::vector<std::string> unknown;
  note_unknown(body, "", {"model", "tokens"}, unknown);
  warn_of_unknown(unknown);
  send(reply, {{"prompt", tokenizer.text(ids, false)}});
}

// A text that is a little too long is told how many tokens it has; no time goes into one that is far from fitting. A
// tokenizer of characters does not know them all.
std::vector<int32_t> Routes::encoded(const std::string& text, const char* field, int64_t fits) const {
  const int64_t counted = 2 * fits;
  try {
    if (auto ids = served_.load()->tokenizer.encode_at_most(text, static_cast<size_t>(counted))) return *std::move(ids);
  } catch (const Error& error) {
    throw Refused(400, error.what(), field);
  }
  throw Refused(400, motet::text(field, ": more than ", counted, " tokens, want at most ", fits), field);
}

std::vector<int32_t> Routes::chat_prompt(const ordered_json& messages, bool generation, int64_t fits) const {
  const Served& served = *served_.load();
  if (!served.chat_template) throw Refused(400, text(served.no_template, ", want /v1/completions"));
  ordered_json variables = served.template_variables;
  variables["messages"] = messages;
  variables["add_generation_prompt"] = generation;
  std::string rendered;
  try {
    rendered = served.chat_template->render(variables);
  } catch (const Error& error) {
    throw Refused(400, error.what(), "messages");
  }
  return encoded(rendered, "messages", fits);
}

// The prompt and what may follow it, which together fit the context.
Job Routes::job(const CompletionRequest& asked, std::vector<int32_t> prompt, const std::string& owner) const {
  const Served& served = *served_.load();
  const char* const field = asked.chat ? "messages" : "prompt";
  if (prompt.empty()) throw Refused(400, text(field, ": is empty, want at least one token"), field);
  const auto tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = served.context - tokens;
  const int64_t wanted =
      asked.max_tokens.value_or(std::clamp<int64_t>(room, 1, asked.chat ? kChatTokens : kTextTokens));
  if (wanted > room)
    throw Refused(400,
                  text(field, ": ", tokens, " tokens and ", wanted, asked.max_tokens ? " of max_tokens" : " to come",
                       " are more than the context of ", served.context),
                  field);
  Job made{.owner = owner,
           .prompt = std::move(prompt),
           .max_tokens = wanted,
           .samples = asked.fields.n,
           .writer = asked.writer,
           .score_prompt = asked.fields.echo && asked.writer.logprobs >= 0};
  if (!asked.fields.ignore_eos) made.writer.end_tokens = served.end_tokens;
  made.writer.continues = !asked.chat;
  made.writer.end_at_special = asked.chat && !asked.fields.ignore_eos;
  if (!asked.seeded) made.writer.sampler.seed = std::random_device()();
  return made;
}

void Routes::warn_of_unknown(const std::vector<std::string>& names) {
  constexpr size_t kMostRemembered = 100, kNameShown = 80;
  std::vector<std::string> fresh;
  const std::lock_guard lock(warned_mutex_);
  for (const std::string& name : names)
    if (warned_.size() < kMostRemembered && warned_.insert(name.substr(0, kNameShown)).second)
      fresh.push_back(name.substr(0, kNameShown));
  if (!fresh.empty()) log_warn(text("serve: fields that have no meaning here are ignored: ", joined_names(fresh)));
}

void Routes::complete(const HttpRequest& request, HttpReply reply, const std::string& owner, bool chat) {
  const Served& served = *served_.load();
  CompletionRequest asked = read_completion(request.body, chat, served.tokenizer.vocabulary_size());
  if (!asked.fields.model.empty()) check_model(served, asked.fields.model);
  warn_of_unknown(asked.unknown);
  std::vector<Job> jobs;
  std::vector<AnsweredPrompt> prompts;
  size_t echoed_bytes = 0;
  const auto add = [&](std::vector<int32_t> ids, const std::string& echoed, size_t unwritten, bool given) {
    echoed_bytes += echoed.size() * static_cast<size_t>(asked.fields.n);
    if (echoed_bytes > kMostEchoed)
      throw Refused(400, text("echo: more than ", kMostEchoed, " bytes with these prompts and n: fewer of either"),
                    "echo");
    jobs.push_back(job(asked, std::move(ids), owner));
    jobs.back().since = std::chrono::duration<double>(request.arrived.time_since_epoch()).count();
    prompts.push_back({echoed, jobs.back().prompt.back()});
    if (jobs.back().score_prompt)
      prompts.back().places = prompt_places(served.tokenizer, jobs.back().prompt, unwritten, echoed, given);
  };
  if (chat) add(chat_prompt(asked.messages, true, served.context), "", 0, true);
  for (const auto& prompt : asked.prompts) {
    const auto* given = std::get_if<std::string>(&prompt);
    std::vector<int32_t> ids =
        given ? encoded(*given, "prompt", served.context) : std::get<std::vector<int32_t>>(prompt);
    const std::string echoed = !asked.fields.echo ? "" : given ? *given : served.tokenizer.text(ids, false);
    const size_t put = given && asked.fields.add_special_tokens ? put_before(served.tokenizer, ids) : 0;
    add(std::move(ids), echoed, put, given != nullptr);
  }
  const Told told = told_logprobs(jobs);
  if (told.all > kMostToldLogprobs)
    throw Refused(400,
                  text("logprobs: up to ", told.all, " with these prompts, n and max_tokens, want at most ",
                       kMostToldLogprobs, ": fewer of any"),
                  "logprobs");
  // Scores of prompts come in one piece, which a stream would write on the engine's thread.
  if (asked.fields.stream && is_large(told.prompts, 0))
    throw Refused(400, text("stream: ", told.prompts, " logprobs of prompts, want it left out, or fewer of them"),
                  "stream");
  AnswerForm form{.chat = chat,
                  .stream = asked.fields.stream,
                  .include_usage = asked.include_usage,
                  .echo = asked.fields.echo,
                  .skip_special = asked.fields.skip_special_tokens,
                  .logged = options_.logs_requests,
                  .large = is_large(told.all, echoed_bytes),
                  .logprobs = asked.writer.logprobs,
                  .samples = asked.fields.n,
                  .id = text(chat ? "chatcmpl-" : "cmpl-", std::hex, now(), "-", ++number_),
                  .model = served.name,
                  .created = now(),
                  .arrived = request.arrived};
  const auto answer =
      std::make_shared<CompletionAnswer>(reply, served.tokenizer, std::move(form), std::move(prompts),
                                         [this](std::function<void()> work) { return answers_.run(std::move(work)); });
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].answer = answer->of_prompt(i);
  engine_->submit(std::move(jobs), [&] { answer->begin(); });
}

}  // namespace motet
