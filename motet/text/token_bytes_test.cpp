#include "motet/text/token_bytes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "motet/formats/json.h"
#include "motet/text/pipeline/stream_decoder.h"

namespace motet {
namespace {

TEST(TokenBytes, CharactersStandForTheirBytes) {
  const auto tokenizer = make_tokenizer("chars", "aé€");
  EXPECT_EQ(token_byte_counts(*tokenizer), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(token_byte_counts(*make_tokenizer("bytes", "")), std::vector<int32_t>(256, 1));
}

// As llama's: a word begins with a blank, which decoding drops at the beginning of a text.
const char* const kWords = R"({
  "version": "1.0", "added_tokens": [{"id": 3, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null, "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "▁a": 2, "<s>": 3}, "merges": ["▁ a"]}})";

TEST(TokenBytes, ABlankBeforeAWordIsPartOfIt) {
  const auto tokenizer = tokenizer_from_json(parse_json(kWords, "words"));
  const std::vector<int32_t> counts = token_byte_counts(*tokenizer);
  EXPECT_EQ(counts[1], 1);
  EXPECT_EQ(counts[2], 2);
}

TEST(TokenBytes, ATokensTextHasTheBlankThatABeginningLacks) {
  const auto tokenizer = tokenizer_from_json(parse_json(kWords, "words"));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{2}), "a");
  EXPECT_EQ(token_bytes(*tokenizer, 1), "a");
  EXPECT_EQ(token_bytes(*tokenizer, 2), " a");
  EXPECT_EQ(token_bytes(*tokenizer, 0), " ");
  EXPECT_EQ(token_bytes(*make_tokenizer("bytes", ""), 0xE2), "\xE2");
}

TEST(TokenBytes, AByteOfSentencePieceIsItself) {
  nlohmann::json words = parse_json(kWords, "words");
  words["model"]["vocab"]["<0xE2>"] = 4, words["model"]["vocab"]["<0xEg>"] = 5;
  words["model"]["byte_fallback"] = true;
  auto& steps = words["decoder"]["decoders"];
  steps.insert(steps.begin() + 1, nlohmann::json::object({{"type", "ByteFallback"}}));
  const auto tokenizer = tokenizer_from_json(words);
  EXPECT_EQ(token_bytes(*tokenizer, 4), "\xE2");
  EXPECT_EQ(token_bytes(*tokenizer, 5), "<0xEg>");
  EXPECT_EQ(token_byte_counts(*tokenizer)[4], 1);  // not the three of U+FFFD
}

TEST(TokenTexts, ACharacterOfSeveralTokensIsOfTheLast) {
  const auto bytes = make_tokenizer("bytes", "");
  const auto texts = [&](std::string_view text) { return token_texts(*bytes, bytes->encode(text)); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts("aé€"), (Texts{"a", "", "é", "", "", "€"}));
  EXPECT_EQ(texts(""), Texts());
  EXPECT_EQ(token_texts(*bytes, std::vector<int32_t>{0xC3, 'a', 0xE2, 0x82}), (Texts{"",
                                                                                     "\xC3"
                                                                                     "a",
                                                                                     "", "\xE2\x82"}));
  const auto words = tokenizer_from_json(parse_json(kWords, "words"));
  EXPECT_EQ(token_texts(*words, std::vector<int32_t>{2, 1}), (Texts{" a", "a"}));
}

TEST(TokenBytes, ATextThatGoesOnKeepsItsFirstBlank) {
  const auto tokenizer = tokenizer_from_json(parse_json(kWords, "words"));
  StreamDecoder anew(*tokenizer), further(*tokenizer);
  further.follow(1);
  EXPECT_EQ(anew.push(2), "a");
  EXPECT_EQ(further.push(2), " a");
  EXPECT_EQ(further.push(1), "a");
  EXPECT_EQ(further.push(2), " a");
}

TEST(TokenBytes, SpecialTokensStandForNone) {
  EXPECT_EQ(token_byte_counts(*tokenizer_from_json(parse_json(kWords, "words")))[3], 0);
}

}  // namespace
}  // namespace motet
