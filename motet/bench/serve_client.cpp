#include "motet/bench/serve_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "motet/core/clock.h"
#include "motet/core/error.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr int kHealthConnections = 8;
constexpr int kSlowBuffer = 4096;  // bytes that the system keeps for a slow reader

class Connection {
 public:
  explicit Connection(int port, int buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      fail("bench serve: port ", port, " of this machine cannot be reached");
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;

  void send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) fail("bench serve: the server closed the connection");
      at += static_cast<size_t>(sent);
    }
  }
  /// More bytes behind `all`; false at the end.
  bool receive(std::string& all, size_t most = 16384) {
    char bytes[16384];
    const ssize_t got = ::recv(socket_, bytes, std::min(most, sizeof bytes), 0);
    if (got > 0) all.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

 private:
  int socket_;
};

bool is_ok(const std::string& bytes) { return bytes.starts_with("HTTP/1.1 200"); }

std::string completion_request(const std::vector<int32_t>& prompt, int64_t max_tokens) {
  const std::string body =
      json{{"prompt", prompt},   {"max_tokens", max_tokens}, {"temperature", 0},
           {"ignore_eos", true}, {"stream", true},           {"stream_options", {{"include_usage", true}}}}
          .dump();
  return text("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
              "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

// The events of a whole stream. Chunks of HTTP end between events, so a line that begins with "data: " is one.
ServedAnswer read_events(const std::string& bytes) {
  ServedAnswer answer;
  for (size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("\ndata: ", at)) {
    at = bytes.find("data: ", at) + 6;
    const std::string line = bytes.substr(at, bytes.find('\n', at) - at);
    if (line.starts_with("[DONE]")) break;
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object() || event.contains("error")) fail("bench serve: the server answered ", quote(line));
    for (const json& choice : event.at("choices")) answer.text += choice.at("text").get<std::string>();
    if (!event.contains("usage") || !event["usage"].is_object()) continue;
    const json& usage = event["usage"];
    answer.tokens = usage.at("completion_tokens").get<int64_t>();
    answer.prompt = usage.at("prompt_tokens").get<int64_t>();
    answer.cached = usage.value("/prompt_tokens_details/cached_tokens"_json_pointer, int64_t{0});
  }
  return answer;
}

}  // namespace

ServedAnswer ask_server(int port, const std::vector<int32_t>& prompt, int64_t max_tokens) {
  Connection connection(port);
  const double begin = steady_seconds();
  connection.send(completion_request(prompt, max_tokens));
  std::string all;
  double first = 0;
  while (connection.receive(all))
    if (first == 0 && all.find("data: ") != std::string::npos) first = steady_seconds();
  if (!is_ok(all) || all.find("data: [DONE]") == std::string::npos)
    fail("bench serve: the server answered ", quote(all));
  ServedAnswer answer = read_events(all);
  if (answer.tokens != max_tokens)
    fail("bench serve: the server answered ", answer.tokens, " tokens, want ", max_tokens);
  answer.first = first - begin;
  return answer;
}

void read_slowly(int port, const std::vector<int32_t>& prompt, int64_t max_tokens, size_t bytes_per_second,
                 const std::atomic<bool>& stop) {
  Connection connection(port, kSlowBuffer);
  connection.send(completion_request(prompt, max_tokens));
  std::string all;
  while (!stop && connection.receive(all, bytes_per_second)) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (all.size() > 12 && !is_ok(all)) fail("bench serve: the server answered ", quote(all));
}

void ask_and_leave(int port, const std::vector<int32_t>& prompt, int64_t max_tokens) {
  Connection connection(port);
  connection.send(completion_request(prompt, max_tokens));
  std::string all;
  while (all.find("data: ") == std::string::npos && connection.receive(all)) {
  }
  if (!is_ok(all)) fail("bench serve: the server answered ", quote(all));
}

std::string get_from_server(int port, const std::string& path) {
  Connection connection(port);
  connection.send(text("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  std::string all;
  while (connection.receive(all)) {
  }
  const size_t end = all.find("\r\n\r\n");
  if (!is_ok(all) || end == std::string::npos) fail("bench serve: ", path, " of the server answered ", quote(all));
  return all.substr(end + 4);
}

HealthCaller::HealthCaller(int port, int64_t per_second)
    : thread_([this, port, per_second] {
        try {
          std::deque<Connection> connections;
          for (int i = 0; i < kHealthConnections; ++i) connections.emplace_back(port);
          const auto between = std::chrono::nanoseconds(1'000'000'000 * kHealthConnections / per_second);
          auto next = std::chrono::steady_clock::now();
          while (!stopped_) {
            for (Connection& connection : connections)
              connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
            for (Connection& connection : connections) {
              std::string all;
              while (all.find("\r\n\r\n") == std::string::npos && connection.receive(all)) {
              }
              if (!is_ok(all)) fail("bench serve: /health answered ", quote(all));
              ++answers_;
            }
            std::this_thread::sleep_until(next += between);
          }
        } catch (const Error&) {
          failed_ = true;
        }
      }) {}

HealthCaller::~HealthCaller() {
  stopped_ = true;
  thread_.join();
}

int64_t HealthCaller::answers() const {
  if (failed_) fail("bench serve: /health had no answer of 200");
  return answers_;
}

}  // namespace motet
