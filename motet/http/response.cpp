#include "motet/http/response.h"

#include <cstdio>
#include <utility>

namespace motet {
namespace {

std::string one_line(std::string_view value) {
  std::string out(value);
  for (char& c : out)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F) c = ' ';
  return out;
}

void add(std::string& head, std::string_view name, std::string_view value) {
  head.append(one_line(name)).append(": ").append(one_line(value)).append("\r\n");
}

/// RFC 9110, 5.6.7; strftime would ask the locale for the names.
std::string http_date(std::time_t now) {
  static const char* const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm at{};
  ::gmtime_r(&now, &at);
  char out[64];
  std::snprintf(out, sizeof out, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[at.tm_wday], at.tm_mday, months[at.tm_mon],
                at.tm_year + 1900, at.tm_hour, at.tm_min, at.tm_sec);
  return out;
}

}  // namespace

std::string response_head(const HttpResponse& response, std::time_t now) {
  std::string head = response.http10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  head.append(std::to_string(response.status)).append(" ").append(reason_phrase(response.status)).append("\r\n");
  add(head, "Date", http_date(now));
  if (!response.content_type.empty()) add(head, "Content-Type", response.content_type);
  const bool bodiless = response.status == 204 || response.status == 304;
  if (response.framing == HttpFraming::length && !bodiless)
    add(head, "Content-Length", std::to_string(response.length));
  if (response.framing == HttpFraming::chunks) add(head, "Transfer-Encoding", "chunked");
  if (!response.keep_alive) add(head, "Connection", "close");
  if (response.keep_alive && response.http10) add(head, "Connection", "keep-alive");
  for (const auto& [name, value] : response.headers) add(head, name, value);
  return head.append("\r\n");
}

const char* reason_phrase(int status) {
  static const std::pair<int, const char*> known[] = {
      {100, "Continue"},
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [number, phrase] : known)
    if (number == status) return phrase;
  return "Status";
}

std::string http_chunk(std::string_view bytes) {
  if (bytes.empty()) return "";
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return std::string(size).append(bytes).append("\r\n");
}

}  // namespace motet
