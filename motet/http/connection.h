// One client's connection, on the I/O thread. Internal: sees Asio.
#pragma once
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <unordered_map>

#include "motet/http/reply_state.h"
#include "motet/http/request_parser.h"
#include "motet/http/response.h"
#include "motet/http/server.h"

namespace motet {

class HttpConnection;

/// What the connections of a server share.
struct HttpConnections {
  HttpServerOptions options;
  HttpHandler handler;
  bool draining = false;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> all;
  std::unordered_map<std::string, int64_t> of_address;  // without those that are refused
  int64_t admitted = 0;
  std::atomic<int64_t> open{0}, requests{0};
  boost::asio::io_context io{1};  // the first to go: what still waits in it looks at the others
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  /// `group`: what connections_per_address counts by; empty: a connection beyond the limits, which is only refused.
  HttpConnection(HttpConnections& shared, Socket socket, std::string peer, std::string group);

  void start();
  /// Closes it now when it waits for a request, else after the answer. A part of a request is refused.
  void drain();
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Code = const boost::system::error_code&;
  /// Closing: the answer is out, and the client's last bytes are read away, for an answer that is followed by a reset
  /// is lost.
  enum class Stage { reading, answering, closing, closed };

  /// Runs a step of its work; what that throws closes this connection and no other.
  template <class Work>
  void step(Work work);

  // Incoming.
  void read();
  void on_read(Code error, size_t count);
  void on_end();
  void probe();
  void watch();
  bool hung_up(short events) const;
  void advance();
  void dispatch();
  void refuse(int status, const std::string& message);

  // Outgoing.
  void flush();
  void begin_answer(const ReplyState::News& news);
  void ask();
  void write();
  void on_written(Code error, size_t count);
  void finish_answer();
  size_t unsent() const { return sending_.size() - sent_ + output_.size(); }
  bool keeps_alive() const { return keep_alive_ && !shared_.draining; }
  /// As many requests wait behind this one as may; a client that leaves is not noticed by reading then.
  bool paused() const { return stage_ == Stage::answering && !reading_ && !read_ended_ && !probed_; }

  /// Whether ask() is due after a silence: in a stream of events, and before an answer when the client's end has come.
  bool asks() const { return !answer_complete_ && (answer_begun_ ? events_ : probed_ && !http10_); }

  // Time.
  Time due() const;
  void arm();
  void on_due();

  HttpConnections& shared_;
  const HttpLimits& limits_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  std::string peer_, group_;
  Stage stage_ = Stage::reading;

  RequestParser parser_;
  std::array<char, 16384> input_;
  bool reading_ = false, read_ended_ = false, watching_ = false, probed_ = false;
  bool first_ = true, in_head_ = false, in_body_ = false, refused_ = false;

  std::shared_ptr<ReplyState> reply_;  // while a handler's answer is not complete
  bool head_request_ = false, http10_ = false, keep_alive_ = true;
  bool answer_begun_ = false, answer_complete_ = false, chunked_ = false, events_ = false;
  std::string sending_, output_;  // being written from sent_ on; what comes behind it
  size_t sent_ = 0;
  bool writing_ = false;

  // When the connection or its header began; the body has to go on; a byte was taken; one was given; it is closed.
  Time since_, body_due_, taken_, given_, close_due_, armed_;
};

}  // namespace motet
