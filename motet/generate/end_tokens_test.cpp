#include "motet/generate/end_tokens.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

const CharTokenizer kTokenizer("abcdefghijk");
const nlohmann::json kNone = nlohmann::json::object();

std::vector<int32_t> ends(const nlohmann::json& ids, const ExtraFiles& files) {
  return end_tokens({.files = files, .token_ids = ids}, kTokenizer);
}

TEST(EndTokens, GenerationConfigThenConfigThenTheTokenizersName) {
  const ExtraFiles named{{"tokenizer_config.json", R"({"eos_token": "d"})"}};
  EXPECT_EQ(ends(kNone, {}), std::vector<int32_t>{});
  EXPECT_EQ(ends(kNone, named), std::vector<int32_t>{3});
  EXPECT_EQ(ends({{"eos_token_id", 5}}, named), std::vector<int32_t>{5});
  EXPECT_EQ(ends({{"eos_token_id", {5, 7}}}, named), (std::vector<int32_t>{5, 7}));
  ExtraFiles all = named;
  all["generation_config.json"] = R"({"eos_token_id": [1, 2], "temperature": 0.6})";
  EXPECT_EQ(ends({{"eos_token_id", 5}}, all), (std::vector<int32_t>{1, 2}));
  all["generation_config.json"] = R"({"eos_token_id": 10})";
  EXPECT_EQ(ends({{"eos_token_id", 5}}, all), std::vector<int32_t>{10});
  all["generation_config.json"] = R"({"eos_token_id": null, "bos_token_id": 1})";
  EXPECT_EQ(ends({{"eos_token_id", 5}, {"pad_token_id", 6}}, all), std::vector<int32_t>{5});
}

TEST(EndTokens, IdsThatAreNeverDrawnAreLeftOut) {
  EXPECT_EQ(ends({{"eos_token_id", {-1, 0, 11, 128001, 10}}}, {}), (std::vector<int32_t>{0, 10}));
}

TEST(EndTokens, WhatIsNoIdIsNamed) {
  EXPECT_EQ(message_of<Error>([] { ends(kNone, {{"generation_config.json", R"({"eos_token_id": "</s>"})"}}); }),
            "generation_config.json: eos_token_id is '\"</s>\"', want the id of a token or a list of them");
}

TEST(EndTokens, NamesStandInEitherFileAsWordsOrObjects) {
  const Companions both{.files = {{"tokenizer_config.json", R"({"bos_token": {"content": "b", "lstrip": false}})"},
                                  {"special_tokens_map.json", R"({"bos_token": "c", "eos_token": {"content": "e"}})"}}};
  EXPECT_EQ(token_name(both, "bos_token"), "b");
  EXPECT_EQ(token_name(both, "eos_token"), "e");
  EXPECT_EQ(token_name(both, "pad_token"), "");
}

TEST(EndTokens, NamedIdsAreAddedWhereNoneIsGiven) {
  Companions made{.files = {{"tokenizer_config.json", R"({"bos_token": "b", "eos_token": "c", "pad_token": "zz"})"}},
                  .token_ids = {{"eos_token_id", {4, 5}}}};
  add_named_token_ids(made, kTokenizer);
  EXPECT_EQ(made.token_ids, (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", {4, 5}}}));
}

}  // namespace
}  // namespace motet
