#pragma once
#include <optional>
#include <thread>

#include "motet/commands/request.h"
#include "motet/commands/served_model.h"
#include "motet/http/server.h"
#include "motet/serve/options.h"
#include "motet/serve/routes.h"

namespace motet {

/// Whether only this machine reaches it.
bool is_loopback(const std::string& address);

/// Of free memory 60 % of what leaves mapped weights there, but a tenth of all at least: their pages come again.
int64_t default_cache_bytes(int64_t free, int64_t mapped);

/// A model behind HTTP: the server, its routes, the engine and the model, put together and taken down in order.
class ModelServer {
 public:
  /// Listens at once, on a thread of its own; until open() requests get 503. Throws as HttpServer.
  ModelServer(ServeOptions, const HttpLimits&, ApiKeys);
  /// Running requests get 503.
  ~ModelServer();
  ModelServer(const ModelServer&) = delete;

  int port() const { return server_.port(); }
  /// Takes requests. Throws UsageError for a model that is not causal.
  void open(const std::filesystem::path& folder, LoadedModel, const CacheOptions&, int64_t threads);
  /// Takes no more and waits for those that run, as long as the options say.
  void drain();

 private:
  ServeOptions options_;
  Metrics metrics_;
  std::optional<LoadedModel> loaded_;
  std::optional<BatchModel> model_;
  std::optional<Served> served_;
  Routes routes_;
  HttpServer server_;
  std::thread io_thread_;
  std::optional<Engine> engine_;
};

}  // namespace motet
