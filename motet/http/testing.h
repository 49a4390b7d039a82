// Help for the tests of this folder: a server in a thread, and clients that are plain sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "motet/core/error.h"
#include "motet/http/server.h"

namespace motet::testing {

inline HttpServerOptions http_options(HttpLimits limits = {}) {
  return {.limits = limits, .error_body = [](int status, const std::string& message) {
            return text("{\"error\":{\"code\":", status, ",\"message\":\"", message, "\"}}");
          }};
}

/// Serves in a thread of its own until the end of the scope.
class ServedHttp {
 public:
  explicit ServedHttp(HttpHandler handler, HttpLimits limits = {})
      : server(http_options(limits), std::move(handler)), thread_([this] { server.run(); }) {}
  ~ServedHttp() {
    server.stop();
    thread_.join();
  }
  HttpServer server;

 private:
  std::thread thread_;
};

/// Waits, at most ten seconds, until something is so.
inline bool comes_true(const std::function<bool()>& so) {
  for (int i = 0; i < 2000 && !so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return so();
}

/// A client's socket; reading gives up after ten seconds.
class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Whether all bytes went out.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  void end() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  /// Closes with a reset.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  /// All that comes until the server closes.
  std::string all() {
    while (more()) {
    }
    return std::exchange(received_, "");
  }
  /// What comes up to and with `mark`; all there is when it does not come.
  std::string until(std::string_view mark) {
    size_t at;
    while ((at = received_.find(mark)) == std::string::npos)
      if (!more()) return std::exchange(received_, "");
    std::string out = received_.substr(0, at + mark.size());
    received_.erase(0, out.size());
    return out;
  }
  /// The head of an answer and as much of a body as its Content-Length says.
  std::string answer() {
    std::string head = until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    const size_t length = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
    while (received_.size() < length)
      if (!more()) return head + std::exchange(received_, "");
    head += received_.substr(0, length);
    received_.erase(0, length);
    return head;
  }
  bool connected = false;
  bool ended = false;  // the server has closed or shut down its side, without a reset

 private:
  bool more() {
    char bytes[4096];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    ended = count == 0;
    if (count > 0) received_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  int socket_;
  std::string received_;
};

/// "200" of an answer's first line.
inline std::string status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.") && answer.size() > 12 ? answer.substr(9, 3) : "none: " + answer.substr(0, 60);
}
inline std::string body_of(const std::string& answer) {
  const size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "" : answer.substr(at + 4);
}

}  // namespace motet::testing
