#include "motet/serve/completion_request.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

std::string refusal(const std::string& body, bool chat = false) {
  try {
    read_completion(body, chat, 256);
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.status(), 400);
    return refused.what();
  }
  return "";
}

std::string chat_refusal(const std::string& more) {
  return refusal(R"({"messages": [{"role": "user", "content": "a"}], )" + more + "}", true);
}

std::string text_refusal(const std::string& more) { return refusal(R"({"prompt": "a", )" + more + "}"); }

TEST(CompletionRequest, PromptsAreTextsIdsAndListsOfBoth) {
  using Ids = std::vector<int32_t>;
  const auto prompts = [](const std::string& prompt) {
    return read_completion(R"({"prompt": )" + prompt + "}", false, 256).prompts;
  };
  EXPECT_EQ(std::get<std::string>(prompts(R"("abc")").at(0)), "abc");
  EXPECT_EQ(std::get<Ids>(prompts("[1, 2, 255]").at(0)), (Ids{1, 2, 255}));
  EXPECT_EQ(prompts(R"(["a", "b"])").size(), 2u);
  EXPECT_EQ(std::get<Ids>(prompts("[[1], [2, 3]]").at(1)), (Ids{2, 3}));
  EXPECT_EQ(refusal(R"({"prompt": [1, 256]})"), "prompt: 256 is above 255");
  EXPECT_EQ(refusal(R"({"prompt": [1, -1]})"), "prompt: -1 is below 0");
  EXPECT_EQ(refusal(R"({"prompt": [[1, 1.5]]})"), "prompt: 1.5, want token ids, integers from 0 to 255");
  EXPECT_EQ(refusal(R"({"prompt": []})"), "prompt: [], want a text, token ids, or a list of either");
  EXPECT_EQ(refusal(R"({"prompt": [{}]})"), "prompt: {}, want a text, token ids, or a list of either");
  EXPECT_EQ(refusal("{}"), "prompt: is missing, want a text, token ids, or a list of either");
  EXPECT_EQ(refusal(R"({"prompt": [)" + std::string(258, ' ') + "\"\"" +
                    [] {
                      std::string more;
                      for (int i = 0; i < 128; ++i) more += ",\"\"";
                      return more;
                    }() +
                    "]}"),
            "prompt: 129 prompts, want at most 128");
}

TEST(CompletionRequest, EveryNumberHasItsRange) {
  EXPECT_EQ(text_refusal(R"("n": 1000000)"), "n: 1000000 is above 16");
  EXPECT_EQ(text_refusal(R"("n": 0)"), "n: 0 is below 1");
  EXPECT_EQ(text_refusal(R"("n": "2")"), "n: '2', want integer, 1 to 16");
  EXPECT_EQ(text_refusal(R"("max_tokens": "5")"), "max_tokens: '5', want integer, 0 to 1073741824");
  EXPECT_EQ(text_refusal(R"("max_completion_tokens": -1)"), "max_completion_tokens: -1 is below 0");
  EXPECT_EQ(read_completion(R"({"prompt": "a", "max_completion_tokens": 2})", false, 256).max_tokens, 2);
  EXPECT_EQ(text_refusal(R"("logit_bias": {"65.0": 1})"), "logit_bias: '65.0', want token ids, integers from 0 to 255");
  EXPECT_EQ(text_refusal(R"("logit_bias": {"065": 1})"), "logit_bias: '065', want token ids, integers from 0 to 255");
  EXPECT_EQ(text_refusal(R"("logit_bias": {"256": 1})"), "logit_bias: '256', want token ids, integers from 0 to 255");
  EXPECT_EQ(text_refusal(R"("max_tokens": -1)"), "max_tokens: -1 is below 0");
  EXPECT_EQ(text_refusal(R"("max_tokens": 9223372036854775808)"),
            "max_tokens: 9223372036854775808 is above 1073741824");
  EXPECT_EQ(text_refusal(R"("max_tokens": 1e400)"), "the body: a number is too large at line 1, column 36");
  EXPECT_EQ(text_refusal(R"("temperature": -0.5)"), "temperature: -0.5 is below 0");
  EXPECT_EQ(text_refusal(R"("temperature": NaN)").substr(0, 20), "the body: wrong JSON");
  EXPECT_EQ(text_refusal(R"("top_p": 1.5)"), "top_p: 1.5 is above 1");
  EXPECT_EQ(text_refusal(R"("logprobs": 21)"), "logprobs: 21 is above 20");
  EXPECT_EQ(text_refusal(R"("seed": 1e300)"), "seed: 1e+300 is above 9223372036854775807");
  EXPECT_EQ(text_refusal(R"("logit_bias": {"3": 101})"), "logit_bias['3']: 101, want a number, -100 to 100");
  EXPECT_EQ(text_refusal(R"("logit_bias": {"256": 1})"), "logit_bias: '256', want token ids, integers from 0 to 255");
  EXPECT_EQ(text_refusal(R"("stop": [1])"), "stop: 1, want texts");
  EXPECT_EQ(text_refusal(R"("stream": "yes")"), "stream: 'yes', want true or false");
  EXPECT_EQ(chat_refusal(R"("max_tokens": 0)"), "max_tokens: 0 is below 1");
  EXPECT_EQ(chat_refusal(R"("top_logprobs": 2)"), "top_logprobs: 2, want logprobs = true beside it");
}

TEST(CompletionRequest, BothNamesOfALengthAreLookedAt) {
  EXPECT_EQ(text_refusal(R"("max_completion_tokens": 2, "max_tokens": "abc")"),
            "max_tokens: 'abc', want integer, 0 to 1073741824");
  EXPECT_EQ(text_refusal(R"("max_completion_tokens": 2, "max_tokens": 3)"),
            "max_tokens: 3, want the 2 of max_completion_tokens");
  EXPECT_EQ(chat_refusal(R"("max_completion_tokens": 2, "max_tokens": 0)"), "max_tokens: 0 is below 1");
  const char* const same = R"({"prompt": "a", "max_completion_tokens": 2, "max_tokens": 2.0})";
  EXPECT_EQ(read_completion(same, false, 256).max_tokens, 2);
}

TEST(CompletionRequest, WhatIsNotDoneIsRefusedAndTheUnknownIsToldOfOnce) {
  EXPECT_EQ(chat_refusal(R"("tools": [{"type": "function"}])"), "tools: is not supported, want it left out");
  EXPECT_EQ(text_refusal(R"("best_of": 3)"), "best_of: is not supported, want it left out");
  EXPECT_EQ(text_refusal(R"("suffix": "x")"), "suffix: is not supported, want it left out");
  EXPECT_EQ(chat_refusal(R"("response_format": {"type": "json_object"})"),
            "response_format: is not supported, want it left out");
  EXPECT_EQ(chat_refusal(R"("chat_template": "{{ x }}")"), "chat_template: is not supported, want it left out");
  EXPECT_EQ(chat_refusal(R"("response_format": {"type": "text"}, "tools": [], "tool_choice": null)"), "");
  EXPECT_EQ(text_refusal(R"("messages": [])"), "messages: is of the other route, want prompt");
  EXPECT_EQ(text_refusal(R"("logprobs": 1, "top_logprobs": 2)"), "top_logprobs: is of the other route, want logprobs");
  EXPECT_EQ(text_refusal(R"("top_logprobs": null)"), "");
  const CompletionRequest request = read_completion(R"({"prompt": "a", "beams": 3, "user": "me"})", false, 256);
  EXPECT_EQ(request.unknown, std::vector<std::string>{"beams"});
  EXPECT_EQ(text_refusal(R"("stop_token_ids": [2])"), "stop_token_ids: is not supported, want it left out");
  EXPECT_EQ(text_refusal(R"("min_tokens": 1)"), "min_tokens: is not supported, want it left out");
  EXPECT_EQ(text_refusal(R"("min_tokens": 0, "stop_token_ids": [], "prompt_logprobs": null)"), "");
}

TEST(CompletionRequest, FieldsOfVllmAndLlamaCppAreRefusedUnlessTheyAskForNothing) {
  struct Case {
    const char *name, *asks, *harmless;
  };
  for (const Case& c : {Case{"logits_processors", R"(["a.b"])", "[]"},
                        {"vllm_xargs", R"({"a": 1})", "{}"},
                        {"length_penalty", "0.5", "1.0"},
                        {"return_tokens_as_token_ids", "true", "false"},
                        {"grammar", R"("root ::= [a]")", R"("")"},
                        {"json_schema", R"({"type": "object"})", "null"},
                        {"n_predict", "8", "null"},
                        {"repeat_penalty", "1.1", "1"},
                        {"mirostat", "2", "0"}}) {
    EXPECT_EQ(text_refusal(text("\"", c.name, "\": ", c.asks)), text(c.name, ": is not supported, want it left out"));
    EXPECT_EQ(text_refusal(text("\"", c.name, "\": ", c.harmless)), "");
  }
}

TEST(CompletionRequest, TheUnknownWithinObjectsIsToldOfOnceToo) {
  const CompletionRequest request = read_completion(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache": 1}], "name": "me"},
                       {"role": "user", "content": "b", "name": "you", "tool_calls": null}],
          "stream": true, "stream_options": {"include_usage": true, "every": 2}})",
      true, 256);
  EXPECT_EQ(request.unknown,
            (std::vector<std::string>{"messages[].name", "messages[].content[].cache", "stream_options.every"}));
}

TEST(CompletionRequest, MessagesAreTextsAndPartsOfText) {
  const CompletionRequest request = read_completion(
      R"({"messages": [{"role": "system", "content": "s"},
          {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})",
      true, 256);
  EXPECT_EQ(request.messages.dump(), R"([{"role":"system","content":"s"},{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(refusal(R"({"messages": []})", true), "messages: want a list of at least one message");
  EXPECT_EQ(refusal(R"({"messages": [{"content": "a"}]})", true).substr(0, 12), "messages[0]:");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "contents": "a"}]})", true),
            "messages[0]: {\"contents\":\"a\",\"role\":\"user\"}, want an object with a content");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": null, "function_call": {}}]})", true),
            "messages[0].function_call: is not supported, want it left out");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]})", true), "");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "b"}]}]})", true),
            "messages[0].tool_calls: is not supported, want it left out");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true),
            "messages[0].content: {\"type\":\"image_url\"}, want parts of type text alone");
}

TEST(CompletionRequest, EveryFieldReachesItsPlace) {
  const CompletionRequest request = read_completion(
      R"({"prompt": "a", "temperature": 0.1, "top_p": 0.2, "top_k": 3, "min_p": 0.4, "typical_p": 0.5,
          "repetition_penalty": 0.6, "frequency_penalty": 0.7, "presence_penalty": 0.8, "seed": 9, "n": 10,
          "max_tokens": 11, "logprobs": 12, "stop": ["13", "14"], "logit_bias": {"15": 16}, "echo": true,
          "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true}, "skip_special_tokens": false})",
      false, 256);
  const SamplerOptions& s = request.writer.sampler;
  EXPECT_EQ(s.temperature, 0.1);
  EXPECT_EQ(s.top_p, 0.2);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.min_p, 0.4);
  EXPECT_EQ(s.typical_p, 0.5);
  EXPECT_EQ(s.repeat_penalty, 0.6);
  EXPECT_EQ(s.frequency_penalty, 0.7);
  EXPECT_EQ(s.presence_penalty, 0.8);
  EXPECT_EQ(s.seed, 9u);
  EXPECT_TRUE(request.seeded);
  EXPECT_EQ(request.fields.n, 10);
  EXPECT_EQ(request.max_tokens, 11);
  EXPECT_EQ(request.writer.logprobs, 12);
  EXPECT_EQ(request.writer.stop, (std::vector<std::string>{"13", "14"}));
  EXPECT_EQ(s.bias, (std::vector<std::pair<int32_t, double>>{{15, 16}}));
  EXPECT_TRUE(request.fields.echo && request.fields.ignore_eos && request.fields.stream && request.include_usage);
  EXPECT_FALSE(request.writer.skip_special);
  EXPECT_TRUE(read_completion(R"({"prompt": "a"})", false, 256).writer.skip_special);
}

TEST(CompletionRequest, WhatEverySampleKeepsHasItsSize) {
  const std::string most(512, 'x');
  EXPECT_EQ(read_completion(R"({"prompt": "a", "stop": ")" + most + "\"}", false, 256).writer.stop.at(0), most);
  EXPECT_EQ(text_refusal(R"("stop": ["a", ")" + most + "y\"]"), "stop: a text of 513 bytes, want at most 512");
  std::string messages;
  for (int i = 0; i < 4097; ++i) messages += R"(,{"role": "user", "content": ""})";
  EXPECT_EQ(refusal(R"({"messages": [)" + messages.substr(1) + "]}", true),
            "messages: 4097 messages, want at most 4096");
}

TEST(CompletionRequest, ASeedHas64Bits) {
  const auto seed = [](const char* number) {
    return read_completion(text(R"({"prompt": "a", "seed": )", number, "}"), false, 256).writer.sampler.seed;
  };
  EXPECT_EQ(seed("9223372036854775807"), (uint64_t{1} << 63) - 1);
  EXPECT_NE(seed("9007199254740993"), seed("9007199254740992"));
  EXPECT_EQ(seed("-2"), ~uint64_t{1});
}

TEST(CompletionRequest, MinusOneIsNoSeed) {
  EXPECT_FALSE(read_completion(R"({"prompt": "a", "seed": -1})", false, 256).seeded);
  EXPECT_TRUE(read_completion(R"({"prompt": "a", "seed": -2})", false, 256).seeded);
  EXPECT_TRUE(read_completion(R"({"prompt": "a", "seed": 0})", false, 256).seeded);
}

TEST(CompletionRequest, NullStandsForTheDefault) {
  const CompletionRequest request = read_completion(
      R"({"prompt": "a", "temperature": null, "n": null, "stop": null, "logprobs": null, "seed": null,
          "max_tokens": null, "logit_bias": null, "stream_options": null})",
      false, 256);
  EXPECT_EQ(request.fields.temperature, 1);
  EXPECT_EQ(request.writer.logprobs, -1);
  EXPECT_FALSE(request.seeded || request.max_tokens);
}

TEST(CompletionRequest, DepthSizeAndFormOfABodyAreChecked) {
  std::string deep = R"({"prompt": "a", "x": )";
  for (int i = 0; i < 10000; ++i) deep += "[";
  EXPECT_EQ(refusal(deep), "the body: JSON is more than 32 levels deep");
  EXPECT_EQ(refusal("[]"), "the body is array, want a JSON object");
  EXPECT_EQ(refusal(R"({"prompt": "a", "prompt": "b"})"), "the body: the name 'prompt' appears twice in one object");
  EXPECT_EQ(refusal("{\"prompt\": \"\xff\"}").substr(0, 21), "the body: no UTF-8 at");
  EXPECT_EQ(refusal(""), "the body: JSON ends too early, after 0 bytes");
}

}  // namespace
}  // namespace motet
