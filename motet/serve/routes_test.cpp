// The whole server but for its model: connections, workers and the engine, each in threads of their own.
#include "motet/serve/routes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/http/testing.h"
#include "motet/serve/testing.h"
#include "motet/text/tokenizer.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

std::string post(const std::string& path, const json& body) {
  const std::string bytes = body.dump();
  return text("POST ", path,
              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ", bytes.size(),
              "\r\n\r\n", bytes);
}

// Tells of the texts that it is to encode.
struct ToldTokenizer : ByteTokenizer {
  std::function<void(std::string_view)> told = [](std::string_view) {};
  std::vector<int32_t> encode(std::string_view text) const override {
    told(text);
    return ByteTokenizer::encode(text);
  }
};

class RoutesTest : public ::testing::Test {
 protected:
  void open() { routes_.open(served_, engine_.emplace(model_, tokenizer_, EngineLimits{}, metrics_)); }
  ~RoutesTest() override {
    routes_.close();
    engine_.reset();
  }
  std::string asked(const std::string& request) {
    Client client(http_.server.port());
    client.send(request);
    return client.answer();
  }
  std::string health() { return asked("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); }
  json complete(const json& body) { return json::parse(body_of(asked(post("/v1/completions", body)))); }

  ToldTokenizer tokenizer_;
  CountedModel model_;
  Metrics metrics_;
  Served served_{.name = "counted", .tokenizer = tokenizer_, .context = 10000};
  Routes routes_{{}, ApiKeys({}), metrics_};
  std::optional<Engine> engine_;
  ServedHttp http_{[this](HttpRequest&& request, HttpReply reply) { routes_.handle(std::move(request), reply); }};
};

TEST_F(RoutesTest, HealthIs503UntilTheModelIsThereAndWhileTheServerEnds) {
  const std::string wanted = post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(status_of(health()), "503");
  EXPECT_EQ(status_of(asked(wanted)), "503");
  open();
  EXPECT_EQ(status_of(health()), "200");
  EXPECT_EQ(status_of(asked(wanted)), "200");
  routes_.drain();
  EXPECT_EQ(status_of(health()), "503");
  EXPECT_EQ(status_of(asked(wanted)), "503");
}

// Every answer is the one that its prompt gets alone, and nothing stays of those who left.
TEST_F(RoutesTest, ManyClientsAtOnceGetTheirOwnAnswersAndLeaveNothing) {
  open();
  const auto request = [](int64_t prompt, bool stream) {
    return json{{"prompt", std::string(static_cast<size_t>(30 + 40 * prompt), static_cast<char>('a' + prompt))},
                {"max_tokens", 12},
                {"temperature", 0},
                {"stream", stream}};
  };
  std::vector<std::string> alone;
  for (int64_t prompt = 0; prompt < 5; ++prompt)
    alone.push_back(complete(request(prompt, false))["choices"][0]["text"]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int number = 0; number < 8; ++number)
    clients.emplace_back([&, number] {
      for (int i = 0; i < 12; ++i) {
        const int64_t prompt = (number + i) % 5;
        const bool stream = (number + i) % 3 > 0, leaves = (number + i) % 3 == 2;
        Client client(http_.server.port());
        client.send(post("/v1/completions", request(prompt, stream)));
        if (leaves) {
          client.until("data: ");
          client.reset();
        } else if (stream) {
          std::string told;
          for (std::string event = client.until("\n\n"); event.find("data: [DONE]") == std::string::npos;
               event = client.until("\n\n")) {
            const size_t at = event.find("data: ");
            if (event.empty()) break;
            if (at != std::string::npos && event.find('{', at) != std::string::npos)
              told +=
                  json::parse(event.begin() + static_cast<std::ptrdiff_t>(event.find('{', at)),
                              event.begin() + static_cast<std::ptrdiff_t>(event.rfind('}')) + 1)["choices"][0]["text"];
          }
          wrong += told != alone[static_cast<size_t>(prompt)];
        } else {
          wrong += json::parse(body_of(client.answer()))["choices"][0]["text"] != alone[static_cast<size_t>(prompt)];
        }
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(comes_true([&] { return metrics_.running == 0 && metrics_.waiting == 0 && metrics_.cache_bytes == 0; }));
  EXPECT_GT(metrics_.prefix_hits, 0);
  EXPECT_TRUE(engine_->drain(10));
}

TEST_F(RoutesTest, AnAnswerIsBoundedByWhatItEchoes) {
  open();
  const std::string megabyte(1 << 20, 'x');
  served_.context = 1 << 22;
  const json many =
      complete({{"prompt", json::array({megabyte, megabyte})}, {"echo", true}, {"n", 16}, {"max_tokens", 0}});
  EXPECT_EQ(many["error"]["message"], "echo: more than 16777216 bytes with these prompts and n: fewer of either");
  const json ids(std::vector<int>((1 << 18) + 1, 65));
  const json long_text = json::parse(body_of(asked(post("/detokenize", {{"tokens", ids}}))));
  EXPECT_EQ(long_text["error"]["message"], "tokens: 262145, want at most 262144");
}

TEST_F(RoutesTest, ATokenBeginsBehindWhatHalfACharacterBecomes) {
  open();
  const auto offsets = [&](const json& ids) {
    const json answer = complete({{"prompt", ids}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
    return answer["choices"][0]["logprobs"]["text_offset"];
  };
  EXPECT_EQ(offsets({226, 65, 66}), json({0, 1, 2}));
  EXPECT_EQ(offsets({65, 226, 130, 66, 67}), json({0, 1, 1, 2, 3}));
  EXPECT_EQ(offsets({65, 226, 130, 172, 66}), json({0, 1, 1, 1, 2}));
}

TEST_F(RoutesTest, AnAnswerMakesNoCharacterWithItsPrompt) {
  open();
  const json answer = complete({{"prompt", {195}},
                                {"echo", true},
                                {"logprobs", 0},
                                {"max_tokens", 2},
                                {"temperature", 0},
                                {"logit_bias", {{"169", 100}}}});
  EXPECT_EQ(answer["choices"][0]["text"], "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["text_offset"], json({0, 1, 2}));
}

TEST_F(RoutesTest, ALargeRequestHoldsNoSmallOneUp) {
  open();
  std::promise<void> begun, waits;
  tokenizer_.told = [&](std::string_view text) {
    if (text.size() > 1000) begun.set_value(), waits.get_future().wait();
  };
  std::thread large([&] { asked(post("/tokenize", {{"prompt", std::string(1 << 17, 'a')}})); });
  begun.get_future().wait();
  EXPECT_EQ(status_of(asked(post("/v1/completions", {{"prompt", "b"}}))), "200");
  EXPECT_EQ(status_of(asked(post("/tokenize", {{"prompt", "b"}}))), "200");
  waits.set_value();
  large.join();
}

TEST_F(RoutesTest, APromptOfTwiceTheContextIsNotCounted) {
  open();
  const auto message = [&](size_t bytes) -> std::string {
    return complete({{"prompt", std::string(bytes, 'a')}, {"max_tokens", 1}})["error"]["message"];
  };
  EXPECT_EQ(message(20000), "prompt: 20000 tokens and 1 of max_tokens are more than the context of 10000");
  EXPECT_EQ(message(20001), "prompt: more than 20000 tokens, want at most 10000");
  const json counted = json::parse(body_of(asked(post("/tokenize", {{"prompt", std::string(20001, 'a')}}))));
  EXPECT_EQ(counted["count"], 20001);
}

TEST_F(RoutesTest, WhatIsDrawnHoldsNoRequestUp) {
  open();
  std::promise<void> begun, waits;
  served_.attention = [&](std::span<const int32_t>) {
    begun.set_value(), waits.get_future().wait();
    return json::object();
  };
  std::thread drawing([&] { asked(post("/motet/attention", {{"text", "a"}})); });
  begun.get_future().wait();
  EXPECT_EQ(status_of(asked(post("/v1/completions", {{"prompt", "b"}}))), "200");
  const json large{{"prompt", std::string(5000, 'b')}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}};
  EXPECT_EQ(status_of(asked(post("/v1/completions", large))), "200");  // which a worker writes
  waits.set_value();
  drawing.join();
}

TEST(Routes, TheOtherOriginIsOneThatAPageCanHave) {
  Metrics metrics;
  const auto take = [&](const std::string& origin) { Routes({.cors_origin = origin}, ApiKeys({}), metrics).close(); };
  for (const char* origin : {"", "*", "null", "http://a.example", "https://a-b.example:8443", "http://[::1]:80",
                             "http://127.0.0.1:3000", "app://obsidian.md"})
    EXPECT_NO_THROW(take(origin)) << origin;
  for (const char* origin :
       {"http://a.example/", "a b", "a.example", "http://", "http://a:", "http://a:b", "http://A",
        "http://a.example, http://b.example", "http://[::1", "://a", "http://a:1234567", "http://[]"})
    EXPECT_EQ(message_of<UsageError>([&] { take(origin); }),
              text("--cors-origin: '", origin, "', want *, null or scheme://host[:port] in small letters"));
}

}  // namespace
}  // namespace motet
