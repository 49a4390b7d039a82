#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace motet {

/// Names and values in the order of the message.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// A whole request. All of it is the client's: of path, query, headers and body nothing but the grammar was checked.
struct HttpRequest {
  std::string method;   // as it was sent: "GET"; a handler answers HEAD as it would GET, the server leaves the body out
  std::string path;     // percent-decoded, without control characters; "/" at least, or "*" of OPTIONS
  std::string query;    // what follows the first '?', not decoded
  HttpHeaders headers;  // names in lower case; values of a repeated name are joined by ", " (single ones were refused)
  std::string body;
  std::string peer;                                    // the client's address, without its port
  std::chrono::steady_clock::time_point arrived = {};  // when all of it was there

  /// The value of a header; the case of `name` does not matter.
  std::optional<std::string_view> header(std::string_view name) const;
};

/// Whether two words are the same but for the case of ASCII letters.
bool same_word(std::string_view a, std::string_view b);

/// Whether the byte may stand in a token: a method, the name of a header (RFC 9110, 5.6.2).
bool is_token(char c);

/// The value of a hexadecimal digit, or -1.
int hex_digit(char c);

/// `text` with %XX replaced; nothing where a % has no two hexadecimal digits or a control character would come out.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace motet
