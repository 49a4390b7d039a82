#include "motet/http/request_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "motet/core/error.h"

namespace motet {
namespace {

using State = RequestParser::State;

const std::string kHost = "Host: x\r\n";

/// The status of a refusal, 200 of a whole request, 0 of one that has not ended.
int status_for(const std::string& bytes, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  parser.feed(bytes);
  return parser.state() == State::failed ? parser.status() : parser.state() == State::done ? 200 : 0;
}
std::string message_of(const std::string& bytes, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  parser.feed(bytes);
  return parser.message();
}
int status_of_fields(const std::string& fields) { return status_for("POST / HTTP/1.1\r\n" + fields + "\r\n"); }
int status_of_target(const std::string& target) {
  return status_for("GET " + target + " HTTP/1.1\r\n" + kHost + "\r\n");
}
int status_of_chunks(const std::string& chunks) {
  return status_for("POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n" + chunks);
}

HttpRequest request_of(const std::string& bytes) {
  RequestParser parser({});
  parser.feed(bytes);
  EXPECT_EQ(parser.state(), State::done) << parser.message();
  return parser.state() == State::done ? parser.take() : HttpRequest{};
}

TEST(RequestParser, ARequestIsReadWhole) {
  const HttpRequest request = request_of(
      "POST /v1/a%2Fb%C3%BC?x=%20&y HTTP/1.1\r\nhOsT: me:80\r\nAccept: a\r\nX:\t 1 \t\r\naccept: b\r\n"
      "Content-Length: 4\r\n\r\n" +
      std::string("\0\r\n\xFF", 4));
  EXPECT_EQ(request.body, std::string("\0\r\n\xFF", 4));
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/a/b\xC3\xBC");
  EXPECT_EQ(request.query, "x=%20&y");
  EXPECT_EQ(request.header("HOST"), "me:80");
  EXPECT_EQ(request.header("accept"), "a, b");
  EXPECT_EQ(request.header("x"), "1");
  EXPECT_EQ(request.header("y"), std::nullopt);
}

TEST(RequestParser, ChunksBecomeOneBodyAndTrailersAreDropped) {
  const HttpRequest request =
      request_of("POST / HTTP/1.1\r\n" + kHost +
                 "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A;name=\"a;b\"\r\n0123456789\r\n"
                 "0\r\nAuthorization: Bearer x\r\n\r\n");
  EXPECT_EQ(request.body, "abc0123456789");
  EXPECT_EQ(request.header("authorization"), std::nullopt);
}

TEST(RequestParser, TheCutsOfTheBytesDoNotMatter) {
  const std::string all =
      "\r\nGET /1 HTTP/1.1\r\n" + kHost + "\r\nPOST /2 HTTP/1.1\r\n" + kHost +
      "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nb;x\r\n01234567890\r\n0\r\nT: 1\r\n\r\nPOST /3 HTTP/1.1\r\n" +
      kHost + "Content-Length: 2\r\n\r\nxyGET /4 HTTP/1.0\r\n\r\n";
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    RequestParser parser({});
    std::string seen;
    for (size_t at = 0; at < all.size();) {
      const size_t count = round == 0 ? 1 : 1 + random() % (1 + static_cast<size_t>(round) / 5);
      parser.feed(std::string_view(all).substr(at, count));
      at += count;
      while (parser.state() == State::done) {
        const HttpRequest request = parser.take();
        seen += request.path + request.body + " ";
        parser.next();
      }
    }
    ASSERT_EQ(seen, "/1 /2a01234567890 /3xy /4 ") << parser.message();
  }
}

TEST(RequestParser, TwoWaysToSeeALengthAreRefused) {
  EXPECT_EQ(status_of_fields(kHost + "Content-Length: 0\r\n"), 200);
  EXPECT_EQ(status_of_fields(kHost + "Content-Length: 0\r\nContent-Length: 0\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding: gzip\r\nContent-Length: 0\r\n"), 400);
  for (const std::string value : {"", "-1", "+0", "0x0", "0, 0", "0,0", "0 0", "18446744073709551616", "1e0", "0;"})
    EXPECT_EQ(status_of_fields(kHost + "Content-Length: " + value + "\r\n"), 400) << value;
  EXPECT_EQ(status_for("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost), 411);
}

TEST(RequestParser, OtherCodingsAreNotImplemented) {
  for (const std::string value : {"gzip", "gzip, chunked", "chunked, gzip", "identity", "chunked, chunked", "xchunked"})
    EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding: " + value + "\r\n"), 501) << value;
  EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding : chunked\r\n"), 400);
  EXPECT_EQ(status_of_fields(kHost + "Transfer-Encoding:\x0b chunked\r\n"), 400);
}

TEST(RequestParser, LinesAreOneLine) {
  EXPECT_EQ(status_for("GET / HTTP/1.1\nHost: x\n\n"), 400);
  EXPECT_EQ(status_for("GET / HTTP/1.1\r\nHost: x\n\r\n"), 400);
  EXPECT_EQ(status_for("GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"), 400);
  EXPECT_EQ(status_for("GET / HTTP/1.1\r\nHost: x\r\r\n\r\n"), 400);
  EXPECT_EQ(message_of("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"), "a line of the header is folded");
  EXPECT_EQ(message_of("GET / HTTP/1.1\r\n Host: x\r\n\r\n"), "a line of the header is folded");
  EXPECT_EQ(message_of("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n"), "a line of the header is folded");
  EXPECT_EQ(message_of(std::string("GET / HTTP/1.1\r\nHost: x\0\r\n\r\n", 28)), "the header has a NUL");
}

TEST(RequestParser, HostIsThereOnceAndIsAName) {
  EXPECT_EQ(status_for("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_for("GET / HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(status_for("GET / HTTP/1.1\r\n" + kHost + kHost + "\r\n"), 400);
  for (const std::string host : {"a/b", "a@b", "a b", "a,b", "a\xC3\xBC", "a#", "a?"})
    EXPECT_EQ(status_for("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"), 400) << host;
  for (const std::string host : {"", "localhost:8000", "[::1]:80", "a-b.c_d"})
    EXPECT_EQ(status_for("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"), 200) << host;
}

TEST(RequestParser, FieldsThatMustBeSingleAre) {
  for (const std::string name : {"Authorization", "Content-Type", "Origin", "Expect", "Content-Encoding"})
    EXPECT_EQ(message_of("GET / HTTP/1.1\r\n" + kHost + name + ": 100-continue\r\n" + name + ": 100-continue\r\n\r\n")
                  .substr(0, 10),
              "the header")
        << name;
}

TEST(RequestParser, RequestLinesAreChecked) {
  for (const std::string line :
       {"GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /", "GET / http/1.1", "G(T / HTTP/1.1", " GET / HTTP/1.1",
        "GET / HTTP/1.1x", "GET / HTTP/11", "GET /a b HTTP/1.1", "\x16\x03\x01"})
    EXPECT_EQ(status_for(line + "\r\n" + kHost + "\r\n"), 400) << line;
  for (const std::string version : {"HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/9.9"})
    EXPECT_EQ(status_for("GET / " + version + "\r\n" + kHost + "\r\n"), 505) << version;
}

TEST(RequestParser, TargetsAreDecodedOrRefused) {
  for (const std::string target : {"/%", "/%4", "/%4g", "/%g4", "/%00", "/%0a", "/%1F", "/%7f", "a", "*", "/a#b",
                                   "/\xC3\xBC", "http://", "http:///a", "http://y/a", "ftp://x/a", "x:80", "//\x7F"})
    EXPECT_EQ(status_of_target(target), 400) << target;
  EXPECT_EQ(request_of("GET http://X/a?b HTTP/1.1\r\nHost: x\r\n\r\n").path, "/a");
  EXPECT_EQ(request_of("GET http://x HTTP/1.1\r\nHost: x\r\n\r\n").path, "/");
  EXPECT_EQ(request_of("GET http://x?b HTTP/1.1\r\nHost: x\r\n\r\n").query, "b");
  EXPECT_EQ(request_of("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").path, "*");
  EXPECT_EQ(request_of("GET /a?http://x/ HTTP/1.1\r\nHost: x\r\n\r\n").path, "/a");
}

TEST(RequestParser, AWrongTargetIsToldWhatIsWanted) {
  const std::pair<const char*, const char*> cases[] = {
      {"/%zz", "two hexadecimal digits behind each %, and no control character"},
      {"/a%00b", "two hexadecimal digits behind each %, and no control character"},
      {"/a#b", "visible ASCII without #, else % and two hexadecimal digits"},
      {"a", "a path that begins with /"},
      {"ftp://x/a", "http or https"},
      {"http://y/a", "the Host of the header in it"}};
  for (const auto& [target, wanted] : cases) {
    RequestParser parser{HttpLimits()};
    parser.feed(text("GET ", target, " HTTP/1.1\r\n", kHost, "\r\n"));
    EXPECT_EQ(parser.message(), text("the target of the request is '", target, "', want ", wanted));
  }
}

TEST(RequestParser, ChunksAreChecked) {
  EXPECT_EQ(status_of_chunks("0\r\n\r\n"), 200);
  EXPECT_EQ(status_of_chunks("1\r\na\r\n0\r\n\r\n"), 200);
  const std::string end = "\r\n0\r\n\r\n";
  for (const std::string size :
       {"g", "-1", "0x1", " 1", "", "1 ", "1 x", "1\n", "1\r", "1;\x01", "1;\n", "1;a\r", ";a"})
    EXPECT_EQ(status_of_chunks(size + "\r\na" + end), 400) << size;
  for (const std::string data : {"ab", "", "a\n", "a\r", "a0"})
    EXPECT_EQ(status_of_chunks("1\r\n" + data + end), 400) << data;
  for (const std::string trailer : {"A b", "A:\x01", "A: b\r\n c", " A: b", ":", "A", "A: b\n", "A: b\r\r"})
    EXPECT_EQ(status_of_chunks("1\r\na\r\n0\r\n" + trailer + "\r\n\r\n"), 400) << trailer;
  EXPECT_EQ(status_of_chunks("1\r\na\r\n0\r\n\n"), 400);
  EXPECT_EQ(status_of_chunks("1\r\na\r\n0\r\n\r\r\n"), 400);
  EXPECT_EQ(status_of_chunks("1\r\na\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of_chunks("10000000000000001\r\na" + end), 413);
}

TEST(RequestParser, LimitsHoldWhateverIsClaimed) {
  const HttpLimits limits{.header_bytes = 256, .header_fields = 4, .body_bytes = 10};
  const std::string line = "POST / HTTP/1.1\r\n" + kHost;
  EXPECT_EQ(status_for("GET /" + std::string(300, 'a'), limits), 414);
  EXPECT_EQ(status_for(line + "A: " + std::string(300, 'a'), limits), 431);
  EXPECT_EQ(status_for(line + "A:1\r\nB:1\r\nC:1\r\nContent-Length: 0\r\n\r\n", limits), 431);
  EXPECT_EQ(status_for(line + "A:1\r\nB:1\r\nContent-Length: 0\r\n\r\n", limits), 200);
  const std::string padding(256 - line.size() - std::string("Content-Length: 0\r\nA: \r\n\r\n").size(), 'a');
  EXPECT_EQ(status_for(line + "Content-Length: 0\r\nA: " + padding + "\r\n\r\n", limits), 200);
  EXPECT_EQ(status_for(line + "Content-Length: 0\r\nA: " + padding + "a\r\n\r\n", limits), 431);

  EXPECT_EQ(status_for(line + "Content-Length: 10\r\n\r\n0123456789", limits), 200);
  EXPECT_EQ(status_for(line + "Content-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(status_for(line + "Content-Length: 18446744073709551615\r\n\r\n", limits), 413);
  const std::string chunked = line + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_for(chunked + "a\r\n0123456789\r\n0\r\n\r\n", limits), 200);
  EXPECT_EQ(status_for(chunked + "b", limits), 413);
  EXPECT_EQ(status_for(chunked + "5\r\n01234\r\n6\r\n0", limits), 413);
  EXPECT_EQ(status_for(chunked + "ffffffffffffffff\r\n", limits), 413);
  EXPECT_EQ(status_for(chunked + std::string(300, '0'), limits), 431);
  EXPECT_EQ(status_for(chunked + "0\r\nA: " + std::string(300, 'a'), limits), 431);
}

TEST(RequestParser, ChunksThatHoldNextToNothingAreRefused) {
  const HttpLimits limits{.header_bytes = 1024, .body_bytes = 1 << 20};
  std::string small = "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n", wide = small;
  for (int i = 0; i < 10000; ++i) small += "1\r\na\r\n";
  for (int i = 0; i < 100; ++i) wide += "1;" + std::string(100, 'a') + "\r\na\r\n";
  EXPECT_EQ(status_for(small + "0\r\n\r\n", limits), 200);
  EXPECT_EQ(status_for(wide + "0\r\n\r\n", limits), 400);
}

TEST(RequestParser, WantsContinueOnlyBeforeTheBody) {
  const std::string head = "POST / HTTP/1.1\r\n" + kHost + "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
  const auto wants = [](const std::string& bytes) {
    RequestParser parser({});
    parser.feed(bytes);
    return parser.wants_continue();
  };
  EXPECT_TRUE(wants(head));
  EXPECT_FALSE(wants(head + "a"));
  EXPECT_FALSE(wants("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_FALSE(wants("POST / HTTP/1.1\r\n" + kHost + "Content-Length: 2\r\n\r\n"));
  EXPECT_EQ(status_for("POST / HTTP/1.1\r\n" + kHost + "Expect: more\r\nContent-Length: 2\r\n\r\n"), 417);
}

TEST(RequestParser, KeepAliveIsTheVersionsUnlessItIsSaid) {
  const auto keeps = [](const std::string& bytes) {
    RequestParser parser({});
    parser.feed(bytes);
    return parser.keep_alive();
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\n" + kHost + "\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\n" + kHost + "Connection: a, CLOSE\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

}  // namespace
}  // namespace motet
