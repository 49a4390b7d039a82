#include "motet/bench/serve_bench.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

using nlohmann::json;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A connection to a port of this machine.
class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
  bool receive(std::string& all) {
    char bytes[16384];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got > 0) all.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

 private:
  int socket_;
};

struct Answer {
  std::string text;
  int64_t tokens = 0;
  double first = 0;  // seconds
};

// The events of a whole stream. Chunks of HTTP end between events, so a line that begins with "data: " is one.
Answer read_events(const std::string& bytes) {
  Answer answer;
  for (size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("\ndata: ", at)) {
    at = bytes.find("data: ", at) + 6;
    const std::string line = bytes.substr(at, bytes.find('\n', at) - at);
    if (line == "[DONE]") break;
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object() || event.contains("error")) fail("bench serve: the server answered ", quote(line));
    for (const json& choice : event.at("choices")) answer.text += choice.at("text").get<std::string>();
    if (event.contains("usage") && event["usage"].is_object())
      answer.tokens = event["usage"].at("completion_tokens").get<int64_t>();
  }
  return answer;
}

Answer ask(int port, const std::vector<int32_t>& prompt, int64_t max_tokens) {
  const std::string body =
      json{{"prompt", prompt},   {"max_tokens", max_tokens}, {"temperature", 0},
           {"ignore_eos", true}, {"stream", true},           {"stream_options", {{"include_usage", true}}}}
          .dump();
  Connection connection(port);
  const double begin = now();
  connection.send(text("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
                       "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body));
  std::string all;
  double first = 0;
  while (connection.receive(all))
    if (first == 0 && all.find("data: ") != std::string::npos) first = now();
  if (!all.starts_with("HTTP/1.1 200") || all.find("data: [DONE]") == std::string::npos)
    fail("bench serve: the server answered ", quote(all));
  Answer answer = read_events(all);
  answer.first = first - begin;
  return answer;
}

}  // namespace

double quantile(std::vector<double> values, double part) {
  if (values.empty()) fail("quantile: there are no values");
  std::sort(values.begin(), values.end());
  const double place = std::ceil(part * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(std::max(place, 0.0))];
}

ServeTimes measure_serving(const ServeLoad& load) {
  const size_t count = load.prompts.size();
  std::vector<Answer> answers(count);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(load.clients));
  std::atomic<size_t> next{0};
  const double begin = now();
  std::vector<std::thread> clients;
  for (size_t c = 0; c < failures.size(); ++c)
    clients.emplace_back([&, c] {
      try {
        for (size_t i = next++; i < count && !interrupted(); i = next++)
          answers[i] = ask(load.port, load.prompts[i], load.max_tokens);
      } catch (...) {
        failures[c] = std::current_exception();
      }
    });
  for (std::thread& client : clients) client.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  check_interrupt();
  ServeTimes times{.seconds = now() - begin};
  for (Answer& answer : answers) {
    times.tokens += answer.tokens;
    times.first_tokens.push_back(answer.first);
    times.texts.push_back(std::move(answer.text));
  }
  return times;
}

}  // namespace motet
