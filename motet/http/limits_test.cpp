// Clients that are slow, greedy or gone, against a server with small limits.
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <random>

#include "motet/core/process.h"
#include "motet/http/server.h"
#include "motet/http/testing.h"

namespace motet {
namespace {

using testing::body_of;
using testing::Client;
using testing::comes_true;
using testing::ServedHttp;
using testing::status_of;

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kPost = "POST /a HTTP/1.1\r\nHost: x\r\n";

void ok(HttpRequest&&, HttpReply reply) { reply.send(200, "text/plain", "ok"); }

/// Keeps the replies of its requests, to be answered by the test.
struct Held {
  std::mutex mutex;
  std::deque<HttpReply> replies;
  HttpHandler handler() {
    return [this](HttpRequest&&, HttpReply reply) {
      const std::lock_guard lock(mutex);
      replies.push_back(reply);
    };
  }
  HttpReply wait() {
    EXPECT_TRUE(comes_true([&] {
      const std::lock_guard lock(mutex);
      return !replies.empty();
    }));
    const std::lock_guard lock(mutex);
    HttpReply out = replies.front();
    replies.pop_front();
    return out;
  }
};

TEST(HttpLimits, ASlowHeaderIsA408) {
  ServedHttp served(ok, {.header_seconds = 0.2});
  Client half(served.server.port()), trickle(served.server.port()), silent(served.server.port());
  half.send("GET / HT");
  std::atomic<bool> done = false;
  std::thread sender([&] {
    trickle.send("GET / HTTP/1.1\r\n");
    while (!done && trickle.send("A: b\r\n")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_EQ(status_of(half.answer()), "408");
  EXPECT_EQ(status_of(trickle.answer()), "408");
  EXPECT_EQ(silent.all(), "");
  done = true;
  sender.join();
}

TEST(HttpLimits, TwoHundredTricklingSocketsDoNotKeepOthersOut) {
  ServedHttp served(ok, {.connections_per_address = 256, .header_seconds = 0.5});
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<Client>(served.server.port()));
    slow.back()->send("GET / HTTP/1.1\r\nA");
  }
  Client client(served.server.port());
  client.send(kGet);
  EXPECT_EQ(status_of(client.answer()), "200");
  for (auto& one : slow) EXPECT_EQ(status_of(one->answer()), "408");
  slow.clear();
  client.close();
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
}

TEST(HttpLimits, ASlowBodyIsA408AndAFastOneIsNot) {
  ServedHttp served(ok, {.body_grace_seconds = 1, .body_bytes_per_second = 1000});
  Client stands(served.server.port()), slow(served.server.port()), fast(served.server.port());
  stands.send(kPost + "Content-Length: 100000\r\n\r\n" + std::string(50000, 'a'));  // what it had in hand does not help
  slow.send(kPost + "Transfer-Encoding: chunked\r\n\r\n");
  std::thread sender([&] {
    while (slow.send("1\r\na\r\n")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  fast.send(kPost + "Content-Length: 15000\r\n\r\n");
  for (int i = 0; i < 150; ++i) {
    fast.send(std::string(100, 'a'));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status_of(fast.answer()), "200");
  EXPECT_EQ(status_of(stands.answer()), "408");
  EXPECT_EQ(status_of(slow.answer()), "408");
  slow.end();
  sender.join();
}

TEST(HttpLimits, AnIdleConnectionIsClosedWithoutAWord) {
  ServedHttp served(ok, {.idle_seconds = 0.1});
  Client client(served.server.port());
  client.send(kGet);
  EXPECT_EQ(status_of(client.answer()), "200");
  EXPECT_EQ(client.all(), "");
}

TEST(HttpLimits, HalfARequestIsA400WhenItsClientEnds) {
  ServedHttp served(ok);
  for (const std::string& half : {std::string("GET / HT"), kPost + "Content-Length: 5\r\n\r\nab",
                                  kPost + "Transfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    Client client(served.server.port());
    client.send(half);
    client.end();
    EXPECT_EQ(status_of(client.all()), "400") << half;
  }
  Client nothing(served.server.port());
  nothing.end();
  EXPECT_EQ(nothing.all(), "");
}

TEST(HttpLimits, RefusalsHaveAJsonBodyAndCloseTheConnection) {
  ServedHttp served(ok);
  Client client(served.server.port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n" + kGet);
  const std::string answer = client.all();
  EXPECT_EQ(status_of(answer), "400");
  EXPECT_NE(answer.find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_NE(answer.find("\r\nContent-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(body_of(answer), R"({"error":{"code":400,"message":"a line of the header is folded"}})");
  EXPECT_EQ(served.server.requests(), 0);
}

TEST(HttpLimits, AGigabyteIsRefusedBeforeItIsThere) {
  ServedHttp served(ok);
  const int64_t before = resident_bytes();
  Client declared(served.server.port()), expecting(served.server.port()), chunked(served.server.port());
  declared.send(kPost + "Content-Length: 1073741824\r\n\r\n");
  EXPECT_EQ(status_of(declared.answer()), "413");
  expecting.send(kPost + "Expect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n");
  EXPECT_EQ(status_of(expecting.answer()), "413");
  std::thread sender([&] {
    chunked.send(kPost + "Transfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "10000\r\n" + std::string(65536, 'a') + "\r\n";
    for (int i = 0; i < 16384 && chunked.send(chunk); ++i) {
    }
  });
  EXPECT_EQ(status_of(chunked.answer()), "413");
  chunked.end();
  sender.join();
  EXPECT_LT(resident_bytes() - before, 100 << 20);
}

TEST(HttpLimits, ContinueIsSaidWhenTheLengthIsAccepted) {
  ServedHttp served([](HttpRequest&& request, HttpReply reply) { reply.send(200, "text/plain", request.body); });
  Client client(served.server.port());
  client.send(kPost + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(status_of(client.until("\r\n\r\n")), "100");
  client.send("abc");
  EXPECT_EQ(body_of(client.answer()), "abc");
}

TEST(HttpLimits, TooManyConnectionsAre503) {
  ServedHttp served(ok, {.connections = 3, .connections_per_address = 2});
  auto first = std::make_unique<Client>(served.server.port());
  Client second(served.server.port());
  first->send(kGet);
  second.send(kGet);
  EXPECT_EQ(status_of(first->answer()), "200");
  EXPECT_EQ(status_of(second.answer()), "200");
  for (int i = 0; i < 100; ++i) {
    Client more(served.server.port());
    const std::string answer = more.all();
    EXPECT_EQ(status_of(answer), "503");
    EXPECT_NE(answer.find("\r\nRetry-After: 1\r\n"), std::string::npos);
  }
  second.send(kGet);
  EXPECT_EQ(status_of(second.answer()), "200");
  first->close();
  EXPECT_TRUE(comes_true([&] {
    Client next(served.server.port());
    next.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return status_of(next.all()) == "200";
  }));
}

TEST(HttpLimits, AClientThatClosesIsNoticedAtOnce) {
  Held held;
  ServedHttp served(held.handler());
  Client closes(served.server.port()), resets(served.server.port());
  closes.send(kGet);
  HttpReply first = held.wait();
  resets.send(kGet);
  HttpReply second = held.wait();
  closes.close();
  EXPECT_TRUE(comes_true([&] { return first.gone(); }));
  resets.reset();
  EXPECT_TRUE(comes_true([&] { return second.gone(); }));
  first.send(200, "text/plain", "to nobody");
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
}

TEST(HttpLimits, AClientThatClosesInAStreamIsNoticed) {
  Held held;
  ServedHttp served(held.handler());
  Client client(served.server.port());
  client.send(kGet);
  HttpReply reply = held.wait();
  reply.begin_stream("text/event-stream");
  reply.write("data: 1\n\n");
  client.until("data: 1");
  client.close();
  EXPECT_TRUE(comes_true([&] { return reply.gone(); }));
}

TEST(HttpLimits, AClientThatClosesBehindManyRequestsIsNoticed) {
  Held held;
  ServedHttp served(held.handler());
  Client client(served.server.port());
  std::string all;
  for (int i = 0; i < 2000; ++i) all += kGet;
  client.send(all);
  HttpReply reply = held.wait();
  client.close();
  EXPECT_TRUE(comes_true([&] { return reply.gone(); }));
  EXPECT_EQ(served.server.requests(), 1);
}

TEST(HttpLimits, AClientThatOnlyEndsItsSideGetsItsAnswer) {
  Held held;
  ServedHttp served(held.handler(), {.comment_seconds = 0.05});
  Client client(served.server.port());
  client.send(kGet);
  HttpReply reply = held.wait();
  client.end();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status_of(client.until("\r\n\r\n")), "100");  // asks whether it is there
  EXPECT_FALSE(reply.gone());
  reply.send(200, "text/plain", "late");
  const std::string answer = client.all();
  EXPECT_NE(answer.find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nlate")) << answer;
  EXPECT_TRUE(client.ended);
}

TEST(HttpLimits, AFullClientPausesItsProducerAndIsNotGone) {
  Held held;
  ServedHttp served(held.handler(), {.waiting_bytes = 65536});
  Client client(served.server.port(), 4096);
  client.send(kGet);
  HttpReply reply = held.wait();
  reply.begin_stream("text/plain");
  constexpr int kPieces = 400;  // far more than the system takes; what it takes at first may end full() before
  for (int i = 0; i < kPieces; ++i) reply.write(std::string(10000, 'a'));
  ASSERT_TRUE(reply.full());
  EXPECT_GT(reply.waiting_bytes(), 1000000u);
  EXPECT_FALSE(reply.gone());
  std::string answer;
  std::thread reader([&] { answer = client.until("0\r\n\r\n"); });
  EXPECT_TRUE(comes_true([&] { return !reply.full(); }));
  EXPECT_FALSE(reply.gone());
  reply.end();
  reader.join();
  EXPECT_GE(std::count(answer.begin(), answer.end(), 'a'), kPieces * 10000);  // sizes of chunks have some too
}

TEST(HttpLimits, AClientThatTakesNothingIsClosed) {
  Held held;
  ServedHttp served(held.handler(), {.waiting_bytes = 65536, .stalled_seconds = 0.2});
  Client client(served.server.port(), 4096);
  client.send(kGet);
  HttpReply reply = held.wait();
  reply.begin_stream("text/plain");
  for (int i = 0; i < 500; ++i) reply.write(std::string(10000, 'a'));
  EXPECT_TRUE(comes_true([&] { return reply.gone(); }));
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
}

TEST(HttpLimits, ASilentStreamOfEventsGetsComments) {
  Held held;
  ServedHttp served(held.handler(), {.comment_seconds = 0.05});
  Client events(served.server.port()), plain(served.server.port());
  events.send(kGet);
  HttpReply first = held.wait();
  first.begin_stream("text/event-stream; charset=utf-8");
  EXPECT_NE(events.until("4\r\n: \n\n\r\n4\r\n: \n\n\r\n").find("\r\n\r\n4\r\n: \n\n"), std::string::npos);
  plain.send(kGet);
  HttpReply second = held.wait();
  second.begin_stream("text/plain");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  second.end();
  plain.until("\r\n\r\n");
  EXPECT_EQ(plain.until("0\r\n\r\n"), "0\r\n\r\n");
  first.end();
}

TEST(HttpLimits, AThousandClientsThatLeaveLeaveNothing) {
  std::mutex mutex;
  std::vector<HttpReply> replies;
  ServedHttp served([&](HttpRequest&& request, HttpReply reply) {
    if (request.path == "/now") return reply.send(200, "text/plain", std::string(100000, 'a'));
    reply.begin_stream("text/event-stream");
    reply.write("data: 1\n\n");
    const std::lock_guard lock(mutex);
    replies.push_back(reply);
  });
  std::mt19937_64 random(1);
  const std::string requests[] = {"GET /now HTTP/1.1\r\nHost: x\r\n\r\n", kGet, kPost + "Content-Length: 9\r\n\r\nab",
                                  "GET /", kPost + "Transfer-Encoding: chunked\r\n\r\n5\r\n"};
  std::deque<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<Client>(served.server.port()));
    const std::string& request = requests[random() % std::size(requests)];
    clients.back()->send(
        std::string_view(request).substr(0, random() % 4 ? request.size() : random() % request.size()));
    if (random() % 3 == 0) clients.back()->reset();
    if (clients.size() > 40) clients.pop_front();
  }
  clients.clear();
  EXPECT_TRUE(comes_true([&] { return served.server.connections() == 0; }));
  const std::lock_guard lock(mutex);
  for (const HttpReply& reply : replies) EXPECT_TRUE(reply.gone());
}

TEST(HttpLimits, AnAnswerEndsWhenAllOfItHasGoneBefore) {
  Held held;
  ServedHttp served(held.handler());
  Client client(served.server.port()), other(served.server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  HttpReply reply = held.wait();
  reply.begin_stream("text/plain");
  reply.write("abc");
  client.until("abc");
  other.send("no request\r\n\r\n");  // by its answer the server's thread has done what follows a write
  EXPECT_EQ(status_of(other.answer()), "400");
  reply.end();
  EXPECT_EQ(client.all(), "");
  EXPECT_TRUE(client.ended);
}

TEST(HttpLimits, ManyThreadsMayWriteToOneReply) {
  Held held;
  ServedHttp served(held.handler());
  Client client(served.server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  HttpReply reply = held.wait();
  reply.begin_stream("text/plain");
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'})
    writers.emplace_back([reply, letter]() mutable {
      for (int i = 0; i < 500; ++i) reply.write(std::string(8, letter));
    });
  for (std::thread& writer : writers) writer.join();
  reply.end();
  const std::string body = body_of(client.all());
  EXPECT_TRUE(client.ended);
  ASSERT_EQ(body.size(), 16000u);
  for (size_t i = 0; i < body.size(); i += 8) ASSERT_EQ(body.substr(i, 8), std::string(8, body[i]));
}

}  // namespace
}  // namespace motet
