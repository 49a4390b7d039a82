#pragma once
#include <functional>
#include <mutex>
#include <string>

#include "motet/http/request.h"

namespace motet {

/// What lies between the producers of one answer, on any thread, and its connection, on the I/O thread.
class ReplyState {
 public:
  enum class Phase { none, whole, stream, ended };

  /// `wake` makes the I/O thread call take() soon; it is not called after finish().
  ReplyState(size_t full_bytes, std::function<void()> wake) : full_bytes_(full_bytes), wake_(std::move(wake)) {}

  // ---- producers
  void send(int status, std::string content_type, std::string body, HttpHeaders headers);
  void begin_stream(std::string content_type, HttpHeaders headers);
  void write(std::string_view bytes);
  void end();
  void abandon();  // the last handle is gone
  bool gone() const;
  size_t waiting_bytes() const;
  bool full() const;

  // ---- the connection
  struct News {
    Phase phase = Phase::none;
    bool abandoned = false;
    int status = 200;  // with content type and headers: the first time that phase is not none
    std::string content_type;
    HttpHeaders headers;
    std::string bytes;
  };
  /// What the producers left since the last call. Its bytes count as waiting until sent() says otherwise.
  News take();
  /// `unsent` bytes of the connection wait for the client.
  void sent(size_t unsent);
  /// Nobody wants more: the answer is complete, or the client is gone.
  void finish();

 private:
  void wake_locked();

  mutable std::mutex mutex_;
  const size_t full_bytes_;
  std::function<void()> wake_;
  News news_;
  size_t unsent_ = 0;
  bool woken_ = false, finished_ = false;
};

}  // namespace motet
