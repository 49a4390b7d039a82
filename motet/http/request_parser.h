#pragma once
#include <memory>
#include <optional>

#include "motet/http/chunks.h"
#include "motet/http/options.h"
#include "motet/http/request.h"

namespace motet {

/// The requests of one connection out of its bytes, however these are cut. Holds at most the limits' header and body
/// and what feed() was given, whatever a client claims.
///
/// Refused beyond the grammar of RFC 9112, for each is a way to make two servers see different requests: lines that
/// end in a bare LF or CR, folded lines, a NUL, Content-Length beside Transfer-Encoding or twice or no number,
/// Transfer-Encoding in HTTP/1.0, a second Host or Authorization, another authority in the target than in Host.
class RequestParser {
 public:
  enum class State { head, body, done, failed };

  explicit RequestParser(const HttpLimits& limits);
  ~RequestParser();

  /// The next bytes of the connection. After `done` they wait for next(); after `failed` they are ignored.
  void feed(std::string_view bytes);
  /// Goes on from `done` with the next request, of which bytes may be there already.
  void next();

  State state() const { return state_; }
  /// Whether a byte of the present request has come.
  bool begun() const;
  /// Bytes that came after a request that is `done`.
  size_t buffered() const { return input_.size() - begin_; }

  /// Of a header that is complete (`body`, `done`):
  bool keep_alive() const;
  bool http10() const;
  /// In `body`: the client waits for "100 Continue", and nothing of its body has come.
  bool wants_continue() const;
  /// Bytes of the body so far.
  size_t body_bytes() const;

  /// In `done`: the request, once.
  HttpRequest take();
  /// In `failed`: the status to answer, and why.
  int status() const { return status_; }
  const std::string& message() const { return why_; }

 private:
  struct Message;  // the present request, and Beast's parser of its header

  void parse();
  bool parse_head();
  void parse_body();
  bool scan_head();
  bool fail_with(int status, std::string message);

  HttpLimits limits_;
  State state_ = State::head;
  std::string input_;
  size_t begin_ = 0;    // what is before it in input_ has been used
  size_t scanned_ = 0;  // of the header, from begin_
  int64_t lines_ = 0;
  std::unique_ptr<Message> message_;
  std::optional<ChunkDecoder> chunks_;
  size_t body_left_ = 0;  // of one that says its length
  int status_ = 0;
  std::string why_;
};

}  // namespace motet
