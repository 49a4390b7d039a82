#pragma once
#include <ctime>
#include <string>
#include <string_view>

#include "motet/http/request.h"

namespace motet {

/// How a client learns where the body of an answer ends.
enum class HttpFraming { length, chunks, close };

struct HttpResponse {
  int status = 200;
  std::string content_type;  // empty: none, as there is no body
  HttpHeaders headers;
  HttpFraming framing = HttpFraming::length;
  size_t length = 0;
  bool keep_alive = true, http10 = false;
};

/// The head of an answer up to its empty line, with the date `now`. A control character in a value becomes a space, so
/// nothing that a client sent can end a line.
std::string response_head(const HttpResponse& response, std::time_t now);

/// "Not Found" of 404; "Status" of those it does not know.
const char* reason_phrase(int status);

/// `bytes` as a chunk of a body; nothing of nothing, which would be the end.
std::string http_chunk(std::string_view bytes);
constexpr std::string_view kLastHttpChunk = "0\r\n\r\n";

}  // namespace motet
