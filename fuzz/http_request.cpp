// Any bytes as what a client sends: requests and at most one refusal, within the limits, and the same however the bytes
// are cut. The first byte is the size of the pieces.
#include "motet/http/request_parser.h"

#include <algorithm>

#include "fuzz/target.h"

namespace {

const motet::HttpLimits kLimits{.header_bytes = 512, .header_fields = 8, .body_bytes = 64};

void want(bool so, const char* what) {
  if (so) return;
  std::cerr << "fuzz http_request: " << what << std::endl;
  std::abort();
}

void check(const motet::HttpRequest& request) {
  want(!request.method.empty() && !request.path.empty(), "a request has a method and a path");
  want(request.path == "*" || request.path.front() == '/', "a path begins with /");
  want(request.path.find_first_of(std::string("\0\r\n", 3)) == std::string::npos, "a path is one line");
  want(static_cast<int64_t>(request.body.size()) <= kLimits.body_bytes, "a body is within its limit");
  want(static_cast<int64_t>(request.headers.size()) <= kLimits.header_fields, "fields are within their limit");
  for (const auto& [name, value] : request.headers) {
    want(request.header(name) == value, "a name stands for one value");
    want((name + value).find_first_of(std::string("\0\r\n", 3)) == std::string::npos, "a field is one line");
  }
}

/// All that comes out, as one text.
std::string outcome(std::string_view bytes, size_t piece) {
  motet::RequestParser parser(kLimits);
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    parser.feed(bytes.substr(at, piece));
    while (parser.state() == motet::RequestParser::State::done) {
      out += parser.keep_alive() ? "kept " : "last ";
      const motet::HttpRequest request = parser.take();
      check(request);
      out += request.method + request.path + "?" + request.query + "\n" + request.body;
      for (const auto& [name, value] : request.headers) out += name + ":" + value + "\n";
      parser.next();
    }
    if (piece == 1) want(parser.buffered() <= 600, "no more waits than the limits allow");
  }
  if (parser.state() == motet::RequestParser::State::failed) {
    want(parser.status() >= 400 && parser.status() < 600, "a refusal has a status");
    want(parser.message().find('\n') == std::string::npos, "a refusal is one line");
    out += std::to_string(parser.status());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> all) {
    if (all.empty()) return;
    const std::string_view bytes(reinterpret_cast<const char*>(all.data()) + 1, all.size() - 1);
    const std::string whole = outcome(bytes, std::max<size_t>(bytes.size(), 1));
    const size_t piece = std::max<size_t>(std::to_integer<size_t>(all.front()), 1);
    want(outcome(bytes, piece) == whole && outcome(bytes, 1) == whole, "the cuts of the bytes do not matter");
  });
}
