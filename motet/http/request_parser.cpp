#include "motet/http/request_parser.h"

#include <boost/beast/http/basic_parser.hpp>  // the one file that sees Beast

#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using Text = beast::string_view;

// Fields that mean something else, or nothing, when they come twice.
constexpr std::string_view kSingle[] = {"authorization", "content-encoding", "content-length",
                                        "content-type",  "expect",           "host",
                                        "origin",        "transfer-encoding"};

std::string_view view(Text text) { return {text.data(), text.size()}; }

bool is_host(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (is_token(c) && c != '#' && c != '^' && c != '`' && c != '|') || c == ':' || c == '[' || c == ']';
  });
}

bool is_number(std::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

/// Beast's callbacks fill the request; what they refuse leaves a status. Bodies are not Beast's (chunks.h).
struct RequestParser::Message : beast::http::basic_parser<true> {
  HttpRequest request;
  std::string target;
  bool http10 = false;
  int status = 0;
  std::string why;

  void refuse(error_code& ec, int with, std::string message) {
    ec = beast::http::error::bad_value;
    status = with;
    why = std::move(message);
  }

  void on_request_impl(beast::http::verb, Text method, Text full_target, int version, error_code&) override {
    request.method = view(method);
    target = view(full_target);
    http10 = version == 10;
  }
  void on_response_impl(int, Text, int, error_code&) override {}
  void on_field_impl(beast::http::field, Text name, Text value, error_code& ec) override {
    std::string key(view(name));
    for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const auto known = std::find_if(request.headers.begin(), request.headers.end(),
                                    [&](const auto& header) { return header.first == key; });
    if (known == request.headers.end()) {
      request.headers.emplace_back(std::move(key), view(value));
    } else if (std::find(std::begin(kSingle), std::end(kSingle), key) != std::end(kSingle)) {
      refuse(ec, 400, text("the header ", key, " is there twice"));
    } else {
      known->second.append(", ").append(view(value));
    }
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  size_t on_body_impl(Text, error_code&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, Text, error_code&) override {}
  size_t on_chunk_body_impl(std::uint64_t, Text, error_code&) override { return 0; }
  void on_finish_impl(error_code&) override {}

  /// What the fields of a complete header have to be together. Returns a status, or 0.
  int check_fields(int64_t body_limit) {
    const auto host = request.header("host");
    if (!host && !http10) return because(400, "the header has no host");
    if (host && !is_host(*host)) return because(400, text("the header host is ", quote(*host)));
    const auto length = request.header("content-length"), coding = request.header("transfer-encoding");
    if (length && coding) return because(400, "the header has a content-length and a transfer-encoding");
    if (length && !is_number(*length)) return because(400, text("the content-length is ", quote(*length)));
    if (coding && http10) return because(400, "HTTP/1.0 has no transfer-encoding");
    if (coding && !same_word(*coding, "chunked"))
      return because(501, text("the transfer-encoding is ", quote(*coding), ", want chunked"));
    if (!length && !coding && (request.method == "POST" || request.method == "PUT" || request.method == "PATCH"))
      return because(411, text("a ", request.method, " wants a content-length"));
    if (length && *content_length() > static_cast<uint64_t>(body_limit))
      return because(413, text("the body has ", *length, " bytes, want at most ", body_limit));
    if (const auto expect = request.header("expect"); expect && !same_word(*expect, "100-continue"))
      return because(417, text("the header expect is ", quote(*expect), ", want 100-continue"));
    return check_target(host.value_or(""));
  }

  /// Splits the target into path and query.
  int check_target(std::string_view host) {
    std::string_view rest = target;
    const auto wrong = [&](const char* wanted) {
      return because(400, text("the target of the request is ", quote(target), ", want ", wanted));
    };
    if (std::any_of(rest.begin(), rest.end(), [](char c) { return c <= 0x20 || c >= 0x7F || c == '#'; }))
      return wrong("visible ASCII without #, else % and two hexadecimal digits");
    if (const size_t scheme = rest.find("://"); rest.front() != '/' && scheme != std::string_view::npos) {
      if (!same_word(rest.substr(0, scheme), "http") && !same_word(rest.substr(0, scheme), "https"))
        return wrong("http or https");
      rest.remove_prefix(scheme + 3);
      const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
      if (authority.empty() || !same_word(authority, host)) return wrong("the Host of the header in it");
      rest.remove_prefix(authority.size());
    } else if (rest.front() != '/' && !(rest == "*" && request.method == "OPTIONS")) {
      return wrong("a path that begins with /");
    }
    const size_t mark = rest.find('?');
    if (mark != std::string_view::npos) request.query = rest.substr(mark + 1);
    const auto path = percent_decoded(rest.substr(0, mark));
    if (!path) return wrong("two hexadecimal digits behind each %, and no control character");
    request.path = path->empty() ? "/" : *path;
    return 0;
  }

  int because(int with, std::string message) {
    why = std::move(message);
    return status = with;
  }
};

RequestParser::RequestParser(const HttpLimits& limits) : limits_(limits) {}
RequestParser::~RequestParser() = default;

void RequestParser::feed(std::string_view bytes) {
  if (state_ == State::failed) return;
  if (begin_ > 0 && begin_ >= input_.size() / 2) {  // amortised: each byte moves once or twice
    input_.erase(0, begin_);
    begin_ = 0;
  }
  input_ += bytes;
  parse();
}

void RequestParser::next() {
  message_.reset();
  scanned_ = 0;
  lines_ = 0;
  chunks_.reset();
  body_left_ = 0;
  state_ = State::head;
  parse();
}

bool RequestParser::begun() const { return state_ != State::head || buffered() > 0; }
bool RequestParser::keep_alive() const { return message_->keep_alive(); }
bool RequestParser::http10() const { return message_ && message_->http10; }
size_t RequestParser::body_bytes() const { return message_ ? message_->request.body.size() : 0; }

bool RequestParser::wants_continue() const {
  return state_ == State::body && !http10() && body_bytes() + buffered() == 0 && message_->request.header("expect");
}

HttpRequest RequestParser::take() { return std::move(message_->request); }

bool RequestParser::fail_with(int status, std::string message) {
  state_ = State::failed;
  status_ = status;
  why_ = std::move(message);
  input_.clear();
  begin_ = 0;
  return false;
}

void RequestParser::parse() {
  if (state_ == State::head && !parse_head()) return;
  if (state_ == State::body) parse_body();
}

/// Looks at the bytes that Beast is lenient about; true when the whole header is there, of scanned_ bytes.
bool RequestParser::scan_head() {
  const auto limit = static_cast<size_t>(limits_.header_bytes);
  const std::string_view all = std::string_view(input_).substr(begin_);
  if (!all.empty() && !is_token(all.front())) return fail_with(400, "the request begins with no method");
  for (; scanned_ < all.size(); ++scanned_) {
    if (scanned_ == limit) {
      if (lines_ == 0) return fail_with(414, text("the line of the request is longer than ", limit, " bytes"));
      return fail_with(431, text("the header is longer than ", limit, " bytes"));
    }
    const char c = all[scanned_], before = scanned_ ? all[scanned_ - 1] : ' ';
    if (c == '\0') return fail_with(400, "the header has a NUL");
    if ((c == '\n') != (before == '\r')) return fail_with(400, "a line of the header does not end in CR LF");
    if (before == '\n' && (c == ' ' || c == '\t')) return fail_with(400, "a line of the header is folded");
    if (c != '\n') continue;
    if (scanned_ >= 3 && all[scanned_ - 2] == '\n') {
      ++scanned_;
      return true;
    }
    if (++lines_ > limits_.header_fields + 1)
      return fail_with(431, text("the header has more than ", limits_.header_fields, " fields"));
  }
  return false;
}

bool RequestParser::parse_head() {
  // RFC 9112, 2.2: an empty line before a request is ignored.
  while (scanned_ == 0 && std::string_view(input_).substr(begin_).starts_with("\r\n")) begin_ += 2;
  if (scanned_ == 0 && std::string_view(input_).substr(begin_) == "\r") return false;
  if (!scan_head()) return false;

  message_ = std::make_unique<Message>();
  Message& message = *message_;
  message.header_limit(static_cast<uint32_t>(limits_.header_bytes) + 1);
  message.body_limit(boost::none);  // by check_fields: a wrong header is told before a long body
  const std::string_view head = std::string_view(input_).substr(begin_, scanned_);
  error_code ec;
  const size_t used = message.put({head.data(), head.size()}, ec);
  if (message.status) return fail_with(message.status, message.why);
  if (ec == beast::http::error::bad_version) {
    const std::string_view line = head.substr(0, head.find('\r')), version = line.substr(line.rfind(' ') + 1);
    const bool other = version.size() == 8 && version.starts_with("HTTP/") && version[6] == '.' &&
                       version != "HTTP/1.0" && version != "HTTP/1.1";  // of these the line is wrong elsewhere
    if (other) return fail_with(505, text("the version is ", quote(version), ", want HTTP/1.1 or HTTP/1.0"));
  }
  if (ec || used != head.size()) return fail_with(400, text("the header is malformed: ", ec.message()));
  if (message.check_fields(limits_.body_bytes)) return fail_with(message.status, message.why);
  begin_ += used;
  if (message.chunked()) chunks_.emplace(limits_);
  if (!message.chunked()) body_left_ = static_cast<size_t>(message.content_length().value_or(0));
  state_ = State::body;
  return true;
}

void RequestParser::parse_body() {
  const std::string_view bytes = std::string_view(input_).substr(begin_);
  std::string& body = message_->request.body;
  if (chunks_) {
    begin_ += chunks_->feed(bytes, body);
    if (chunks_->status()) fail_with(chunks_->status(), chunks_->message());
    if (chunks_->done()) state_ = State::done;
  } else {
    const size_t count = std::min(bytes.size(), body_left_);
    body.append(bytes.substr(0, count));
    begin_ += count;
    body_left_ -= count;
    if (body_left_ == 0) state_ = State::done;
  }
}

}  // namespace motet
