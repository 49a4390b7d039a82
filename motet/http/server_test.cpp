#include "motet/http/server.h"

#include <gtest/gtest.h>

#include "motet/core/testing.h"
#include "motet/http/testing.h"

namespace motet {
namespace {

using testing::body_of;
using testing::Client;
using testing::comes_true;
using testing::http_options;
using testing::message_of;
using testing::ServedHttp;
using testing::status_of;

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kLastGet = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Answers with what was asked.
void echo(HttpRequest&& request, HttpReply reply) {
  reply.send(200, "text/plain", request.method + " " + request.path + "?" + request.query + " " + request.body);
}

TEST(HttpServer, AnswersSeveralRequestsOfAConnection) {
  ServedHttp served(echo);
  Client client(served.server.port());
  for (const std::string path : {"/", "/a%20b?q=%41", "/c"}) {
    ASSERT_TRUE(client.send("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"));
    const std::string answer = client.answer();
    EXPECT_EQ(status_of(answer), "200");
    EXPECT_NE(answer.find("\r\nContent-Type: text/plain\r\n"), std::string::npos);
    EXPECT_EQ(answer.find("Connection:"), std::string::npos);
  }
  client.send(kLastGet);
  EXPECT_EQ(body_of(client.answer()), "GET /a? ");
  EXPECT_EQ(client.all(), "");  // and the connection is closed
  EXPECT_EQ(served.server.requests(), 4);
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  constexpr int kCount = 3000;
  ServedHttp served(echo);
  Client client(served.server.port());
  std::thread sender([&] {
    std::string all;
    for (int i = 0; i < kCount; ++i) all += text("GET /", i, " HTTP/1.1\r\nHost: x\r\n\r\n");
    client.send(all);
    client.end();
  });
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(body_of(client.answer()), text("GET /", i, "? "));
  sender.join();
  EXPECT_EQ(client.all(), "");
}

TEST(HttpServer, AnswersOfAnotherThreadKeepTheOrder) {
  std::vector<std::thread> threads;
  ServedHttp served([&](HttpRequest&& request, HttpReply reply) {
    threads.emplace_back([path = request.path, reply]() mutable { reply.send(200, "text/plain", path); });
  });
  Client client(served.server.port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += text("GET /", i, " HTTP/1.1\r\nHost: x\r\n\r\n");
  client.send(all);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(body_of(client.answer()), text("/", i));
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, AStreamIsSentInChunksAndTheConnectionStays) {
  ServedHttp served([](HttpRequest&&, HttpReply reply) {
    reply.begin_stream("text/event-stream", {{"X-A", "1"}});
    reply.write("data: 1\n\n");
    reply.write("");  // would end it
    reply.write("data: 2\n\n");
    reply.end();
    reply.write("data: 3\n\n");
  });
  Client client(served.server.port());
  for (int i = 0; i < 2; ++i) {
    client.send(kGet);
    const std::string head = client.until("\r\n\r\n");
    EXPECT_NE(head.find("\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
    EXPECT_NE(head.find("\r\nX-A: 1\r\n"), std::string::npos);
    EXPECT_EQ(client.until("0\r\n\r\n"), "12\r\ndata: 1\n\ndata: 2\n\n\r\n0\r\n\r\n");
  }
}

TEST(HttpServer, Http10GetsNoChunksAndIsClosed) {
  ServedHttp served([](HttpRequest&& request, HttpReply reply) {
    if (request.path == "/whole") return reply.send(200, "text/plain", "w");
    reply.begin_stream("text/plain");
    reply.write("ab");
    reply.end();
  });
  Client stream(served.server.port()), whole(served.server.port()), kept(served.server.port());
  stream.send("GET /s HTTP/1.0\r\n\r\n");
  const std::string answer = stream.all();
  EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos);
  EXPECT_EQ(body_of(answer), "ab");
  whole.send("GET /whole HTTP/1.0\r\n\r\n");
  EXPECT_EQ(body_of(whole.all()), "w");
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /whole HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_NE(kept.answer().find("\r\nConnection: keep-alive\r\n"), std::string::npos);
  }
}

TEST(HttpServer, HeadGetsTheHeadAlone) {
  ServedHttp served([](HttpRequest&& request, HttpReply reply) {
    if (request.path == "/whole") return reply.send(200, "text/plain", "body");
    reply.begin_stream("text/plain");
    reply.write("body");
    reply.end();
  });
  Client client(served.server.port());
  client.send("HEAD /whole HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.until("\r\n\r\n").find("\r\nContent-Length: 4\r\n"), std::string::npos);
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(status_of(client.until("\r\n\r\n")), "200");
  client.send("HEAD /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(body_of(client.all()), "");
}

TEST(HttpServer, AnExceptionOfTheHandlerIsA500AndTheServerGoesOn) {
  ServedHttp served([](HttpRequest&& request, HttpReply reply) {
    if (request.path == "/error") fail("secret");
    if (request.path == "/number") throw 3;
    if (request.path == "/nothing") return;
    reply.send(200, "text/plain", "ok");
  });
  Client client(served.server.port());
  for (const std::string path : {"/error", "/number", "/nothing"}) {
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string answer = client.answer();
    EXPECT_EQ(status_of(answer), "500");
    EXPECT_EQ(body_of(answer), R"({"error":{"code":500,"message":"internal error"}})");
  }
  client.send(kGet);
  EXPECT_EQ(body_of(client.answer()), "ok");
}

TEST(HttpServer, AStreamThatNobodyEndsIsCutOff) {
  ServedHttp served([](HttpRequest&&, HttpReply reply) {
    reply.begin_stream("text/plain");
    reply.write("half");
  });
  Client client(served.server.port());
  client.send(kGet);
  EXPECT_EQ(client.all().find("0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(client.ended);
}

TEST(HttpServer, AHeaderCannotSplitTheAnswer) {
  ServedHttp served([](HttpRequest&&, HttpReply reply) { reply.send(200, "a\r\nX: 1", "", {{"Y", "b\r\n\r\nc"}}); });
  Client client(served.server.port());
  client.send(kGet);
  const std::string head = client.until("\r\n\r\n");
  EXPECT_NE(head.find("\r\nContent-Type: a  X: 1\r\n"), std::string::npos);
  EXPECT_NE(head.find("\r\nY: b    c\r\n"), std::string::npos);
}

TEST(HttpServer, ATakenPortAndAWrongAddressAreOneLine) {
  HttpServer first(http_options(), echo);
  auto options = http_options();
  options.port = first.port();
  EXPECT_EQ(message_of<Error>([&] { HttpServer(options, echo); }),
            text("cannot listen on 127.0.0.1:", first.port(), ": the port is taken"));
  options.address = "300.1.1.1";
  EXPECT_NE(message_of<UsageError>([&] { HttpServer(options, echo); }).find("'300.1.1.1'"), std::string::npos);
  options.port = 65536;
  EXPECT_EQ(message_of<UsageError>([&] { HttpServer(options, echo); }), "the port is 65536, want 0 to 65535");
}

TEST(HttpServer, NamesAndIpv6AreAddressesToo) {
  auto options = http_options();
  options.address = "localhost";
  const HttpServer named(options, echo);
  EXPECT_TRUE(Client(named.port()).connected);
  options.address = "::1";
  try {
    EXPECT_GT(HttpServer(options, echo).port(), 0);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(HttpServer, StopEndsRunWhetherItBeganOrNot) {
  HttpServer before(http_options(), echo);
  before.stop();
  before.run();
  HttpReply kept = [] {
    std::unique_ptr<HttpReply> last;
    std::atomic<bool> asked = false;
    ServedHttp served([&](HttpRequest&&, HttpReply reply) {
      last = std::make_unique<HttpReply>(reply);
      asked = true;
    });
    Client client(served.server.port());
    client.send(kGet);
    EXPECT_TRUE(comes_true([&] { return asked.load(); }));
    return *last;
  }();
  EXPECT_TRUE(kept.gone());
  kept.send(200, "text/plain", "to nobody");  // its server does not exist any more
}

TEST(HttpServer, DrainingFinishesTheAnswersAndTakesNoNewConnections) {
  std::unique_ptr<HttpReply> held;
  std::atomic<bool> asked = false;
  ServedHttp served([&](HttpRequest&&, HttpReply reply) {
    held = std::make_unique<HttpReply>(reply);
    asked = true;
  });
  Client idle(served.server.port()), busy(served.server.port());
  busy.send(kGet);
  ASSERT_TRUE(comes_true([&] { return asked.load() && served.server.connections() == 2; }));
  served.server.drain();
  EXPECT_EQ(idle.all(), "");
  EXPECT_TRUE(idle.ended);
  EXPECT_FALSE(Client(served.server.port()).connected);
  held->send(200, "text/plain", "done");
  const std::string answer = busy.all();
  EXPECT_EQ(body_of(answer), "done");
  EXPECT_NE(answer.find("\r\nConnection: close\r\n"), std::string::npos);
  busy.close();
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
}

TEST(HttpServer, DrainingRefusesAPartOfARequest) {
  ServedHttp served([](HttpRequest&&, HttpReply reply) { reply.send(200, "text/plain", "ok"); });
  Client head(served.server.port()), body(served.server.port());
  for (Client* client : {&head, &body}) {
    client->send(kGet);
    EXPECT_EQ(body_of(client->answer()), "ok");
  }
  head.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(status_of(body.until("\r\n\r\n")), "100");
  body.send("ab");
  // The bytes of both have been read when a later request has its answer.
  Client later(served.server.port());
  later.send(kGet);
  EXPECT_EQ(body_of(later.answer()), "ok");
  served.server.drain();
  for (Client* client : {&head, &body}) {
    const std::string answer = client->all();
    EXPECT_EQ(status_of(answer), "503");
    EXPECT_NE(answer.find("the server is about to stop"), std::string::npos) << answer;
    EXPECT_NE(answer.find("\r\nConnection: close\r\n"), std::string::npos);
    client->close();
  }
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
}

}  // namespace
}  // namespace motet
