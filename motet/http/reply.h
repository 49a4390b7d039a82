#pragma once
#include <memory>

#include "motet/http/request.h"

namespace motet {

class ReplyState;

/// The answer to one request: a handle that may be copied and called from any thread; each call hands over to the
/// server's I/O thread and returns at once. A request whose last handle goes without an answer gets a 500; a stream
/// without end() is cut off, so that its client knows that the end is missing.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<ReplyState> state);

  /// The whole answer. What follows a send() or an end() is ignored.
  void send(int status, const std::string& content_type, std::string body, HttpHeaders headers = {});

  /// Begins a body whose length is not known, with status 200. A stream of "text/event-stream" gets the comment
  /// ": \n\n" after a silence, therefore each write() of it holds whole events.
  void begin_stream(const std::string& content_type, HttpHeaders headers = {});
  void write(std::string_view bytes);
  void end();

  /// The client has left or was closed, or the answer is complete; calls do nothing any more.
  bool gone() const;
  /// Bytes that were given and that the client's connection has not taken yet.
  size_t waiting_bytes() const;
  /// Whether they are above the limit waiting_bytes: the producer should pause while they are.
  bool full() const;

 private:
  struct Handle;  // the last one to go says that nobody will answer
  std::shared_ptr<Handle> handle_;
};

}  // namespace motet
