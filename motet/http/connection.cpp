#include "motet/http/connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "motet/core/error.h"
#include "motet/core/log.h"

namespace motet {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kComment = ": \n\n";
constexpr std::chrono::seconds kClosing{2};      // for the client to take the last answer
constexpr std::chrono::milliseconds kLook{500};  // between looks at a client whose bytes nobody reads
constexpr auto kNever = std::chrono::steady_clock::time_point::max();

std::chrono::steady_clock::duration seconds(double count) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(count));
}

}  // namespace

HttpConnection::HttpConnection(HttpConnections& shared, Socket socket, std::string peer, std::string group)
    : shared_(shared),
      limits_(shared.options.limits),
      socket_(std::move(socket)),
      timer_(shared.io),
      peer_(std::move(peer)),
      group_(std::move(group)),
      parser_(limits_),
      since_(Clock::now()),
      armed_(kNever) {}

template <class Work>
void HttpConnection::step(Work work) {
  try {
    if (stage_ != Stage::closed) work();
  } catch (const std::exception& error) {
    log_warn(text("the HTTP connection of ", peer_, ": ", error.what()));
    close();
  }
}

void HttpConnection::start() {
  ++shared_.open;
  if (!group_.empty()) {
    ++shared_.admitted;
    ++shared_.of_address[group_];
    read();
  } else {
    refuse(503, "there are too many connections");
  }
  arm();
}

void HttpConnection::drain() {
  if (stage_ != Stage::reading) return;
  if (!parser_.begun()) return close();
  step([&] {
    refuse(503, "the server is about to stop");
    arm();
  });
}

void HttpConnection::close() {
  if (stage_ == Stage::closed) return;
  const auto self = shared_from_this();
  stage_ = Stage::closed;
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  --shared_.open;
  if (!group_.empty()) {
    --shared_.admitted;
    if (--shared_.of_address[group_] == 0) shared_.of_address.erase(group_);
  }
  shared_.all.erase(this);
  if (const auto reply = std::exchange(reply_, nullptr)) reply->finish();
}

// ---- incoming ------------------------------------------------------------------------------------------------------

void HttpConnection::read() {
  if (reading_ || read_ended_ || stage_ == Stage::closed) return;
  if (stage_ == Stage::answering && parser_.buffered() >= static_cast<size_t>(limits_.header_bytes)) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(input_), [self = shared_from_this()](Code error, size_t count) {
    self->step([&] { self->on_read(error, count); });
  });
}

void HttpConnection::on_read(Code error, size_t count) {
  reading_ = false;
  if (error && error != asio::error::eof) return close();
  if (error) {
    on_end();
  } else if (stage_ != Stage::closing && !refused_) {
    const size_t before = parser_.body_bytes();
    parser_.feed({input_.data(), count});
    if (in_body_ && stage_ == Stage::reading) {
      const double more = static_cast<double>(parser_.body_bytes() - std::min(before, parser_.body_bytes()));
      body_due_ = std::min(body_due_ + seconds(more / static_cast<double>(limits_.body_bytes_per_second)),
                           Clock::now() + seconds(limits_.body_grace_seconds));
    }
    advance();
  }
  read();
  arm();
}

/// The client has shut down its side, or has gone altogether: TCP tells the same of both.
void HttpConnection::on_end() {
  read_ended_ = true;
  if (stage_ == Stage::closing) return close();
  if (stage_ == Stage::reading) return advance();
  probe();
}

/// Makes a client that has gone answer with a reset.
void HttpConnection::probe() {
  probed_ = true;
  if (answer_complete_) return;
  if (http10_ && !answer_begun_) return close();  // HTTP/1.0 knows nothing that is harmless
  watch();
  if (stage_ != Stage::closed && asks()) ask();
}

/// Closes when a reset comes in, although nobody reads or writes.
void HttpConnection::watch() {
  if (!watching_) {
    watching_ = true;
    socket_.async_wait(Socket::wait_error, [self = shared_from_this()](Code error) {
      self->watching_ = false;
      if (!error) self->step([&] { self->watch(); });
    });
  }
  if (hung_up(0)) close();
}

bool HttpConnection::hung_up(short events) const {
  pollfd look{const_cast<Socket&>(socket_).native_handle(), events, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (events | POLLERR | POLLHUP)) != 0;
}

void HttpConnection::advance() {
  if (stage_ != Stage::reading) return;
  using State = RequestParser::State;
  const State state = parser_.state();
  if (state == State::failed) return refuse(parser_.status(), parser_.message());
  if (state == State::done) return dispatch();
  if (read_ended_)
    return parser_.begun() ? refuse(400, "the connection was shut down in the middle of a request") : close();
  if (!in_head_ && parser_.begun()) {
    in_head_ = true;
    if (!first_) since_ = Clock::now();
  }
  if (state == State::body && !in_body_) {
    in_body_ = true;
    body_due_ = Clock::now() + seconds(limits_.body_grace_seconds);
    if (parser_.wants_continue()) {
      output_ += kContinue;
      write();
    }
  }
}

void HttpConnection::dispatch() {
  stage_ = Stage::answering;
  http10_ = parser_.http10();
  keep_alive_ = parser_.keep_alive();
  HttpRequest request = parser_.take();
  request.peer = peer_, request.arrived = std::chrono::steady_clock::now();
  const std::string name = request.method + " " + quote(request.path);
  head_request_ = request.method == "HEAD";
  answer_begun_ = answer_complete_ = chunked_ = events_ = probed_ = false;
  ++shared_.requests;
  reply_ = std::make_shared<ReplyState>(static_cast<size_t>(limits_.waiting_bytes),
                                        [&io = shared_.io, weak = weak_from_this(), this] {
                                          asio::post(io, [weak, this] {
                                            if (const auto self = weak.lock()) step([this] { flush(); });
                                          });
                                        });
  HttpReply reply(reply_);
  const auto failed = [&](const char* what) {
    log_warn(name + ": " + what);
    if (reply_) reply_->send(500, "application/json", shared_.options.error_body(500, "internal error"), {});
  };
  try {
    shared_.handler(std::move(request), reply);
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("an exception of no known type");
  }
}

/// An answer of the server itself, after which the connection is closed.
void HttpConnection::refuse(int status, const std::string& message) {
  stage_ = Stage::answering;
  keep_alive_ = false;
  refused_ = true;
  answer_begun_ = answer_complete_ = true;
  const std::string body = shared_.options.error_body(status, message);
  HttpResponse response{.status = status, .content_type = "application/json", .length = body.size()};
  response.headers = shared_.options.headers;
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  response.keep_alive = false;
  output_ += response_head(response, std::time(nullptr)) + body;
  write();
}

// ---- outgoing ------------------------------------------------------------------------------------------------------

/// Takes what the handler's side left in the reply.
void HttpConnection::flush() {
  if (!reply_ || stage_ != Stage::answering || answer_complete_) return;
  using Phase = ReplyState::Phase;
  ReplyState::News news = reply_->take();
  if (news.abandoned && news.phase != Phase::none) return close();  // the client must not take it for a whole answer
  if (news.abandoned) {
    news = {.phase = Phase::whole, .status = 500, .content_type = "application/json"};
    news.bytes = shared_.options.error_body(500, "internal error");
  }
  if (news.phase == Phase::none) return;
  if (!answer_begun_) begin_answer(news);
  if (!head_request_) output_ += chunked_ ? http_chunk(news.bytes) : news.bytes;
  if (news.phase != Phase::stream || head_request_) {
    answer_complete_ = true;
    if (chunked_ && !head_request_) output_ += kLastHttpChunk;
  }
  given_ = Clock::now();
  write();
  arm();
}

void HttpConnection::begin_answer(const ReplyState::News& news) {
  answer_begun_ = true;
  const bool stream = news.phase != ReplyState::Phase::whole;
  HttpResponse response{.status = news.status, .content_type = news.content_type, .headers = news.headers};
  const HttpHeaders& always = shared_.options.headers;
  response.headers.insert(response.headers.end(), always.begin(), always.end());
  response.length = news.bytes.size();
  response.http10 = http10_;
  if (stream) response.framing = http10_ ? HttpFraming::close : HttpFraming::chunks;
  if (response.framing == HttpFraming::close) keep_alive_ = false;
  response.keep_alive = keeps_alive();
  keep_alive_ = response.keep_alive;
  chunked_ = response.framing == HttpFraming::chunks;
  events_ = stream && news.content_type.starts_with("text/event-stream");
  output_ += response_head(response, std::time(nullptr));
}

/// Sends what no client minds.
void HttpConnection::ask() {
  if (answer_begun_) {
    output_ += chunked_ ? http_chunk(kComment) : std::string(kComment);
  } else {
    output_ += kContinue;
  }
  given_ = Clock::now();
  write();
}

void HttpConnection::write() {
  if (writing_ || stage_ == Stage::closed) return;
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    std::swap(sending_, output_);
    if (sending_.empty()) {
      if (stage_ == Stage::answering && answer_complete_) finish_answer();
      return;
    }
    taken_ = Clock::now();
  }
  writing_ = true;
  socket_.async_write_some(
      asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
      [self = shared_from_this()](Code error, size_t count) { self->step([&] { self->on_written(error, count); }); });
}

void HttpConnection::on_written(Code error, size_t count) {
  writing_ = false;
  if (error) return close();
  sent_ += count;
  taken_ = Clock::now();
  if (reply_) reply_->sent(unsent());
  write();
  arm();
}

void HttpConnection::finish_answer() {
  if (const auto reply = std::exchange(reply_, nullptr)) reply->finish();
  if (!keeps_alive()) {
    stage_ = Stage::closing;
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    if (read_ended_) return close();
    close_due_ = Clock::now() + kClosing;
  } else {
    stage_ = Stage::reading;
    first_ = in_head_ = in_body_ = false;
    since_ = Clock::now();
    parser_.next();
    advance();
  }
  read();
}

// ---- time ----------------------------------------------------------------------------------------------------------

HttpConnection::Time HttpConnection::due() const {
  Time out = kNever;
  if (unsent() > 0) out = taken_ + seconds(limits_.stalled_seconds);
  if (stage_ == Stage::closing) return std::min(out, close_due_);
  if (stage_ == Stage::reading) {
    if (in_body_) return std::min(out, body_due_);
    const bool idle = !first_ && !in_head_;
    return std::min(out, since_ + seconds(idle ? limits_.idle_seconds : limits_.header_seconds));
  }
  if (asks() && unsent() == 0) out = std::min(out, given_ + seconds(limits_.comment_seconds));
  if (paused()) out = std::min(out, Clock::now() + kLook);
  return out;
}

void HttpConnection::arm() {
  if (stage_ == Stage::closed) return;
  const Time next = due();
  if (next >= armed_) return;  // what is armed comes first and looks again
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](Code error) {
    if (error) return;
    self->armed_ = kNever;
    self->step([&] {
      self->on_due();
      self->arm();
    });
  });
}

void HttpConnection::on_due() {
  const Time now = Clock::now();
  if (paused() && hung_up(POLLRDHUP)) return probe();
  if (due() > now) return;
  if (unsent() > 0 && taken_ + seconds(limits_.stalled_seconds) <= now) return close();
  if (stage_ == Stage::closing) return close();
  if (stage_ == Stage::answering) return asks() && unsent() == 0 ? ask() : void();
  if (!parser_.begun()) return close();
  refuse(408, in_body_ ? text("the body comes slower than ", limits_.body_bytes_per_second, " bytes a second")
                       : text("the header is not complete after ", limits_.header_seconds, " seconds"));
}

}  // namespace motet
