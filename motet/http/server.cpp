#include "motet/http/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/socket_base.hpp>

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/http/connection.h"

namespace motet {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kSendBuffer = 128 << 10;  // of the system, beside waiting_bytes; its own choice grows to megabytes
constexpr int64_t kRefusedAtOnce = 64;  // connections beyond the limits that are told so; more are just closed
constexpr std::chrono::milliseconds kPause{100};  // where the system has no descriptor left

/// What connections_per_address counts by: an IPv4 address, or the /64 that one owner of IPv6 has.
std::string group_of(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  const auto bytes = v6.to_bytes();
  return std::string(bytes.begin(), bytes.begin() + 8);
}

}  // namespace

struct HttpServer::Loop {
  HttpConnections shared;
  tcp::acceptor acceptor{shared.io};
  asio::steady_timer pause{shared.io};
  int port = 0;

  void listen();
  void accept();
  void admit(tcp::socket socket);
  void close_all(bool waiting_only);
};

void HttpServer::Loop::listen() {
  const HttpServerOptions& options = shared.options;
  const std::string where = text(options.address, ":", options.port);
  if (options.port < 0 || options.port > 65535) fail_usage("the port is ", options.port, ", want 0 to 65535");
  error_code error;
  tcp::resolver resolver(shared.io);
  const auto found = resolver.resolve(options.address, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) fail_usage("cannot listen on ", quote(options.address), ": ", error.message());
  const auto v4 =
      std::find_if(found.begin(), found.end(), [](const auto& e) { return e.endpoint().address().is_v4(); });
  const tcp::endpoint endpoint = (v4 == found.end() ? found.begin() : v4)->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) fail("cannot listen on ", where, ": the port is taken");
  if (error) fail("cannot listen on ", where, ": ", error.message());
  port = acceptor.local_endpoint().port();
}

void HttpServer::Loop::accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    try {
      if (!error) admit(std::move(socket));
    } catch (const std::exception& without) {  // memory, say: others are still let in
      log_warn(text("an HTTP connection was not admitted: ", without.what()));
    }
    if (!error || error == asio::error::connection_aborted) return accept();
    pause.expires_after(kPause);
    pause.async_wait([this](const error_code& cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
  });
}

void HttpServer::Loop::admit(tcp::socket socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // it has left already
  socket.set_option(tcp::no_delay(true), error);
  socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), error);
  const HttpLimits& limits = shared.options.limits;
  std::string group = group_of(peer.address());
  const auto known = shared.of_address.find(group);
  const int64_t of_address = known == shared.of_address.end() ? 0 : known->second;
  if (shared.admitted >= limits.connections || of_address >= limits.connections_per_address) {
    if (static_cast<int64_t>(shared.all.size()) - shared.admitted >= kRefusedAtOnce) return;
    group.clear();
  }
  const auto connection =
      std::make_shared<HttpConnection>(shared, std::move(socket), peer.address().to_string(), std::move(group));
  shared.all.emplace(connection.get(), connection);
  connection->start();
}

void HttpServer::Loop::close_all(bool waiting_only) {
  error_code ignored;
  acceptor.close(ignored);
  pause.cancel();
  const auto all = shared.all;  // closing takes them out of the original
  for (const auto& [pointer, connection] : all) waiting_only ? connection->drain() : connection->close();
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler) : loop_(std::make_unique<Loop>()) {
  loop_->shared.options = std::move(options);
  if (!loop_->shared.options.error_body)
    loop_->shared.options.error_body = [](int, const std::string&) { return "{}"; };
  loop_->shared.handler = std::move(handler);
  loop_->listen();
  loop_->accept();
}

HttpServer::~HttpServer() { loop_->close_all(false); }

int HttpServer::port() const { return loop_->port; }

void HttpServer::run() {
  const auto work = asio::make_work_guard(loop_->shared.io);
  while (!loop_->shared.io.stopped()) {
    try {
      loop_->shared.io.run();
    } catch (const std::exception& error) {  // connections see to their own; the loop must go on whatever happens
      log_warn(text("the HTTP server: ", error.what()));
    }
  }
}

void HttpServer::drain() {
  asio::post(loop_->shared.io, [this] {
    loop_->shared.draining = true;
    loop_->close_all(true);
  });
}

void HttpServer::stop() {
  asio::post(loop_->shared.io, [this] {
    loop_->close_all(false);
    loop_->shared.io.stop();
  });
}

int64_t HttpServer::connections() const { return loop_->shared.open; }
int64_t HttpServer::requests() const { return loop_->shared.requests; }

}  // namespace motet
