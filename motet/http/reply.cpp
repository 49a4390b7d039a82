#include "motet/http/reply.h"

#include <utility>

#include "motet/http/reply_state.h"

namespace motet {

// ---- ReplyState ----------------------------------------------------------------------------------------------------

void ReplyState::wake_locked() {
  if (woken_ || finished_) return;
  woken_ = true;
  wake_();
}

void ReplyState::send(int status, std::string content_type, std::string body, HttpHeaders headers) {
  const std::lock_guard lock(mutex_);
  if (finished_ || news_.phase != Phase::none) return;
  news_ = {.phase = Phase::whole,
           .status = status,
           .content_type = std::move(content_type),
           .headers = std::move(headers),
           .bytes = std::move(body)};
  wake_locked();
}

void ReplyState::begin_stream(std::string content_type, HttpHeaders headers) {
  const std::lock_guard lock(mutex_);
  if (finished_ || news_.phase != Phase::none) return;
  news_ = {.phase = Phase::stream, .content_type = std::move(content_type), .headers = std::move(headers)};
  wake_locked();
}

void ReplyState::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (finished_ || news_.phase != Phase::stream || bytes.empty()) return;
  news_.bytes += bytes;
  wake_locked();
}

void ReplyState::end() {
  const std::lock_guard lock(mutex_);
  if (finished_ || news_.phase != Phase::stream) return;
  news_.phase = Phase::ended;
  wake_locked();
}

void ReplyState::abandon() {
  const std::lock_guard lock(mutex_);
  if (finished_ || news_.phase == Phase::whole || news_.phase == Phase::ended) return;
  news_.abandoned = true;
  wake_locked();
}

bool ReplyState::gone() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

size_t ReplyState::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return finished_ ? 0 : news_.bytes.size() + unsent_;
}

bool ReplyState::full() const { return waiting_bytes() > full_bytes_; }

ReplyState::News ReplyState::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  unsent_ += news_.bytes.size();
  News out = std::move(news_);
  news_ = {.phase = out.phase};
  return out;
}

void ReplyState::sent(size_t unsent) {
  const std::lock_guard lock(mutex_);
  unsent_ = unsent;
}

void ReplyState::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  news_.bytes.clear();
  wake_ = nullptr;  // it holds the connection's memory
}

// ---- HttpReply -----------------------------------------------------------------------------------------------------

struct HttpReply::Handle {
  std::shared_ptr<ReplyState> state;
  explicit Handle(std::shared_ptr<ReplyState> of) : state(std::move(of)) {}
  ~Handle() { state->abandon(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

HttpReply::HttpReply(std::shared_ptr<ReplyState> state) : handle_(std::make_shared<Handle>(std::move(state))) {}

void HttpReply::send(int status, const std::string& content_type, std::string body, HttpHeaders headers) {
  handle_->state->send(status, content_type, std::move(body), std::move(headers));
}
void HttpReply::begin_stream(const std::string& content_type, HttpHeaders headers) {
  handle_->state->begin_stream(content_type, std::move(headers));
}
void HttpReply::write(std::string_view bytes) { handle_->state->write(bytes); }
void HttpReply::end() { handle_->state->end(); }
bool HttpReply::gone() const { return handle_->state->gone(); }
size_t HttpReply::waiting_bytes() const { return handle_->state->waiting_bytes(); }
bool HttpReply::full() const { return handle_->state->full(); }

}  // namespace motet
