#include "motet/text/words.h"

#include <gtest/gtest.h>

#include "motet/formats/json.h"

namespace motet {
namespace {

TEST(Words, ACharacterBeginsAWordWhenItIsWhiteSpace) {
  const auto tokenizer = make_tokenizer("chars", "a b\nc\t,");
  const std::vector<bool> begins = word_beginnings(*tokenizer);
  for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
    const std::string piece = tokenizer->piece(id);
    EXPECT_EQ(begins[static_cast<size_t>(id)], piece == " " || piece == "\n" || piece == "\t") << piece;
  }
}

// As SentencePiece writes it; decoding drops the blank before the first token of a text.
TEST(Words, ABlankBeforeATokenBeginsOneAndASpecialTokenDoesNot) {
  const auto tokenizer = tokenizer_from_json(parse_json(R"({
    "version": "1.0", "added_tokens": [{"id": 3, "content": " <s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "▁a": 2, " <s>": 3}, "merges": ["▁ a"]}})",
                                                        "words"));
  EXPECT_EQ(word_beginnings(*tokenizer), (std::vector<bool>{true, false, true, false}));
}

}  // namespace
}  // namespace motet
