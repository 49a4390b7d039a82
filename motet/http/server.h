#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "motet/http/options.h"
#include "motet/http/reply.h"
#include "motet/http/request.h"

namespace motet {

/// Called on the I/O thread for each whole request, in the order of its connection; the next one of a connection comes
/// when the answer is complete. Must not block; what it throws becomes a 500.
using HttpHandler = std::function<void(HttpRequest&&, HttpReply)>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // a number or a name of this machine
  int port = 0;                       // 0: any that is free
  HttpLimits limits;
  HttpHeaders headers;  // of every answer
  /// The JSON body of an answer that the server gives itself: of refused requests and of exceptions. Without it
  /// these say "{}".
  std::function<std::string(int status, const std::string& message)> error_body;
};

/// An HTTP/1.1 and 1.0 server: one thread, any number of connections within the limits. README.md says what it refuses
/// and with which status.
class HttpServer {
 public:
  /// Listens at once: from here on clients can connect. Throws Error, a line with address and port, where that cannot
  /// be.
  HttpServer(HttpServerOptions options, HttpHandler handler);
  /// Closes every connection. run() must have returned.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that it listens on.
  int port() const;
  /// Serves on this thread until stop(); then every connection is closed. Once.
  void run();
  /// No new connections; those that wait for a request are closed, those that have sent a part of one get 503, the
  /// others are closed after their answer. From any thread.
  void drain();
  /// Ends run(), before or after it began. From any thread, not from a signal handler.
  void stop();

  /// Connections open now, with those that are being closed. From any thread.
  int64_t connections() const;
  /// Requests that the handler was given. From any thread.
  int64_t requests() const;

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace motet
