#include "motet/generate/chat.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

class ChatTest : public ::testing::Test {
 protected:
  Model model_ = fresh(tiny({{"initializer_range", 0.3}}, {}, 13, 64));
  CharTokenizer tokenizer_{"abcdefghijsu|"};
  ChatTemplate form_{"{% for m in messages %}{{ m.content }}|{% endfor %}"};
  GenerateOptions options_{.max_tokens = 6, .writer = {.stop = {"|"}, .sampler = {.temperature = 0}}};

  Chat chat(const std::string& system = "") { return Chat(*model_, tokenizer_, form_, {}, system); }
  std::string say(Chat& to, const std::string& message) {
    std::string shown;
    const std::string said = to.answer(message, options_, [&](std::string_view text) { shown += text; });
    EXPECT_EQ(said, shown);
    return said;
  }
};

TEST_F(ChatTest, AnswersAreThoseOfTheWholeHistory) {
  Chat talk = chat("aj");
  std::string history = "aj|";
  for (const char* message : {"abc", "fgh", "j"}) {
    history += std::string(message) + "|";
    const std::string said = say(talk, message);
    EXPECT_EQ(said, generate(*model_, tokenizer_, history, options_)[0].text) << history;
    history += said + "|";
  }
  EXPECT_EQ(talk.messages().size(), 7u);
}

TEST_F(ChatTest, WhatTurnsShareIsComputedOnce) {
  Chat talk = chat();
  say(talk, "abcdefgh");
  const int64_t first = talk.tokens_computed();
  EXPECT_EQ(first, 9);
  say(talk, "ab");
  EXPECT_LE(talk.tokens_computed() - first, 6);  // the end of the answer, two signs and a message of two
}

TEST_F(ChatTest, TheOldestTurnsAreLeftOutWhenTheContextIsFull) {
  Chat talk = chat("j");
  for (int i = 0; i < 12; ++i) say(talk, "abcdef");
  EXPECT_LT(talk.messages().size(), 13u);
  EXPECT_EQ(talk.messages()[0]["content"], "j");
  EXPECT_EQ(talk.messages()[1]["role"], "user");
}

TEST_F(ChatTest, AnAnswerHasRoomForAQuarterOfTheContextAtMost) {
  options_.max_tokens = 1000;
  Chat talk = chat();
  EXPECT_EQ(message_of<Error>([&] { say(talk, std::string(70, 'a')); }),
            "chat: the message has 71 tokens with its form, want at most 48 of the context of 64");
}

TEST_F(ChatTest, TheTemplateKnowsRolesAndThatAnAnswerFollows) {
  const ChatTemplate form(
      "{{ extra }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}b{% endif %}");
  Chat talk(*model_, tokenizer_, form, {{"extra", "j"}}, "d");
  const std::string first = say(talk, "ac");
  EXPECT_EQ(first, generate(*model_, tokenizer_, "jsduacb", options_)[0].text);
  EXPECT_EQ(say(talk, "e"), generate(*model_, tokenizer_, "jsduaca" + first + "ueb", options_)[0].text);
}

TEST_F(ChatTest, WhatWasSaidBeforeAnInterruptStaysInTheHistory) {
  options_.writer.stop = {};
  Chat talk = chat();
  std::string shown;
  EXPECT_THROW(talk.answer("ab", options_,
                           [&](std::string_view text) {
                             shown += text;
                             if (shown.size() >= 3) throw Interrupted("interrupted");
                           }),
               Interrupted);
  ASSERT_EQ(talk.messages().size(), 2u);
  EXPECT_EQ(talk.messages()[1]["role"], "assistant");
  EXPECT_EQ(talk.messages()[1]["content"], shown);
}

TEST_F(ChatTest, AnAnswerEndsAtAnEndToken) {
  options_.writer.stop = {};
  Chat plain = chat(), ending = chat();
  const std::string whole = say(plain, "abc");
  ASSERT_EQ(whole.size(), 6u);
  options_.writer.end_tokens = tokenizer_.encode(whole.substr(2, 1));
  EXPECT_EQ(say(ending, "abc"), whole.substr(0, whole.find(whole[2])));
}

TEST_F(ChatTest, AMessageThatNeverFitsIsRefusedAndForgotten) {
  Chat talk = chat();
  say(talk, "a");
  EXPECT_EQ(message_of<Error>([&] { say(talk, std::string(70, 'a')); }),
            "chat: the message has 71 tokens with its form, want at most 58 of the context of 64");
  EXPECT_EQ(talk.messages().size(), 2u);
  say(talk, "b");
  EXPECT_EQ(talk.messages().size(), 4u);
}

}  // namespace
}  // namespace motet
