#include "motet/http/response.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

constexpr std::time_t kThen = 784111777;  // RFC 9110's example

TEST(HttpResponse, AHeadSaysWhereTheBodyEnds) {
  const std::string date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
  EXPECT_EQ(response_head({.content_type = "a/b", .headers = {{"X", "1"}}, .length = 3}, kThen),
            "HTTP/1.1 200 OK\r\n" + date + "Content-Type: a/b\r\nContent-Length: 3\r\nX: 1\r\n\r\n");
  EXPECT_EQ(response_head({.status = 404, .framing = HttpFraming::chunks, .keep_alive = false}, kThen),
            "HTTP/1.1 404 Not Found\r\n" + date + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(response_head({.framing = HttpFraming::close, .keep_alive = false, .http10 = true}, kThen),
            "HTTP/1.0 200 OK\r\n" + date + "Connection: close\r\n\r\n");
  EXPECT_EQ(response_head({.status = 204}, kThen), "HTTP/1.1 204 No Content\r\n" + date + "\r\n");
}

TEST(HttpResponse, AControlCharacterEndsNoLine) {
  const std::string head =
      response_head({.content_type = "a\r\nb", .headers = {{"X\n", std::string("\0\x7F\t", 3)}}}, kThen);
  EXPECT_NE(head.find("\r\nContent-Type: a  b\r\n"), std::string::npos);
  EXPECT_NE(head.find("\r\nX :   \t\r\n"), std::string::npos);
}

TEST(HttpResponse, AChunkOfNothingIsNotTheEnd) {
  EXPECT_EQ(http_chunk(""), "");
  EXPECT_EQ(http_chunk("a\r\n"), "3\r\na\r\n\r\n");
  EXPECT_EQ(http_chunk(std::string(26, 'a')), "1a\r\n" + std::string(26, 'a') + "\r\n");
}

}  // namespace
}  // namespace motet
