#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <set>

#include "motet/http/request.h"
#include "motet/serve/completion_answer.h"
#include "motet/serve/completion_request.h"
#include "motet/serve/engine.h"
#include "motet/serve/keys.h"
#include "motet/serve/workers.h"
#include "motet/text/chat/template.h"

namespace motet {

/// The model that is served, as its interface needs it.
struct Served {
  std::string name;  // what clients call it
  const Tokenizer& tokenizer;
  int64_t context = 0;
  std::vector<int32_t> end_tokens;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: it has none that can be used
  std::string no_template;                            // why not, then
  nlohmann::ordered_json template_variables;
  nlohmann::json tokenizer_info;  // of /tokenizer_info
  int64_t created = 0;            // seconds since 1970
  nlohmann::json about;           // of the page: name, mechanism, sizes
  /// What the page draws of a text of these tokens (report_attention.js); any thread may call it.
  std::function<nlohmann::json(std::span<const int32_t>)> attention;
};

struct RouteOptions {
  bool others_reach_it = false;  // the address is not a loopback one: Host may be any name
  std::string address, cors_origin;
  bool logs_requests = false;
};

/// The paths of the server: who may ask what, and what is done of it. handle() is called on the I/O thread and hands
/// everything that takes time to the workers, and they to the engine.
class Routes {
 public:
  /// Throws UsageError for a cors_origin that no page can have.
  Routes(RouteOptions, ApiKeys, Metrics&);
  ~Routes();
  /// From here on requests are taken; until then, and after drain(), /health says 503. Both must live until close(),
  /// from which on they are not used.
  void open(const Served&, Engine&);
  void drain() { draining_ = true; }
  /// Answers that were computed are on their way to their clients.
  void send_answers() { answers_.stop(Workers::Waiting::done); }
  void close();

  void handle(HttpRequest&&, HttpReply);

 private:
  struct Route;
  static const std::vector<Route>& table();
  void check_origin(const HttpRequest&) const;
  void answer(const Route&, HttpRequest&&, HttpReply, const std::string& owner);

  void health(HttpReply) const;
  void models(HttpReply) const;
  void model(const HttpRequest&, HttpReply) const;
  void attention(const HttpRequest&, HttpReply) const;
  void tokenize(const HttpRequest&, HttpReply);
  void detokenize(const HttpRequest&, HttpReply);
  void complete(const HttpRequest&, HttpReply, const std::string& owner, bool chat);
  std::vector<int32_t> encoded(const std::string& text, const char* field, int64_t fits) const;
  std::vector<int32_t> chat_prompt(const nlohmann::ordered_json& messages, bool generation, int64_t fits) const;
  Job job(const CompletionRequest&, std::vector<int32_t> prompt, const std::string& owner) const;
  void refuse(HttpReply&, const std::string& route, const Refused&, HttpHeaders = {}) const;
  void send(HttpReply&, const nlohmann::json&) const;
  void warn_of_unknown(const std::vector<std::string>& names);

  RouteOptions options_;
  ApiKeys keys_;
  Metrics& metrics_;
  std::atomic<const Served*> served_{nullptr};
  Engine* engine_ = nullptr;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> number_{0};
  std::mutex warned_mutex_;
  std::set<std::string> warned_;
  Workers workers_;  // of what is asked
  Workers large_;    // of what is asked in many bytes
  Workers answers_;  // and of large answers
  Workers drawings_;
};

}  // namespace motet
