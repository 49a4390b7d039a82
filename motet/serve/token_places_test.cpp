#include "motet/serve/token_places.h"

#include <gtest/gtest.h>

#include "motet/formats/json.h"

namespace motet {
namespace {

using Places = std::vector<int64_t>;

// Bytes behind the normal form NFC; the last token is "b" with the blank before it, which its offsets lack.
std::unique_ptr<Tokenizer> composing() {
  nlohmann::json bytes = ByteTokenizer().to_json();
  bytes["normalizer"] = {{"type", "NFC"}};
  bytes["post_processor"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  bytes["model"]["vocab"]["Ġb"] = 256;
  bytes["model"]["merges"] = {"Ġ b"};
  return tokenizer_from_json(bytes);
}

Places places_of(const Tokenizer& tokenizer, const std::string& text) {
  return prompt_places(tokenizer, tokenizer.encode(text), 0, text, true);
}

TEST(TokenPlaces, ATokenBeginsInTheTextThatWasGiven) {
  const auto tokenizer = composing();
  EXPECT_EQ(places_of(*tokenizer, "e\u0301e\u0301x"), (Places{0, 0, 2, 2, 4}));
  EXPECT_EQ(places_of(*tokenizer, "e\u0301 bx"), (Places{0, 0, 2, 4}));
  EXPECT_EQ(places_of(*tokenizer, "\u00E9 bx"), (Places{0, 0, 1, 3}));
  const std::string text = "e\u0301x";
  std::vector<int32_t> ids = tokenizer->encode(text);
  ids.insert(ids.begin(), 'y');
  EXPECT_EQ(prompt_places(*tokenizer, ids, 1, text, true), (Places{0, 0, 0, 2}));
}

TEST(TokenPlaces, AnUnknownTokenIsAsLongAsWhatItStandsFor) {
  const auto tokenizer = tokenizer_from_json(parse_json(
      R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
          "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<unk>": 2}, "merges": [],
          "unk_token": "<unk>", "fuse_unk": true}})",
      "unknown"));
  EXPECT_EQ(places_of(*tokenizer, "a?\u00E9b?"), (Places{0, 1, 3, 4}));
}

TEST(TokenPlaces, NoneIsBehindTheText) {
  const auto tokenizer = composing();
  EXPECT_EQ(prompt_places(*tokenizer, tokenizer->encode("abc"), 0, "a", false), (Places{0, 1, 1}));
}

TEST(TokenPlaces, AnAnswerBeginsBehindItsPrompt) {
  const ByteTokenizer tokenizer;
  TokenPlaces places(tokenizer);
  places.follow(5, 0xC3);
  EXPECT_EQ(places.next(0xA9), 5);  // no character with the byte before it
  EXPECT_EQ(places.next('a'), 6);
  EXPECT_EQ(places.place(), 7);
}

}  // namespace
}  // namespace motet
