#include "motet/text/tokenizer.h"

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

const std::string kText = "To be, or nøt to be: 日本語 🎵\n";

std::string all_bytes() {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) out += static_cast<char>(byte);
  return out;
}

TEST(ByteTokenizer, EveryByteComesBack) {
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = tokenizer.encode(all_bytes());
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(tokenizer.decode(ids), all_bytes());
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(CharTokenizer, IdsFollowTheOrderOfTheCharactersBytes) {
  const CharTokenizer tokenizer("banana ø");
  EXPECT_EQ(tokenizer.vocabulary_size(), 5);
  EXPECT_EQ(tokenizer.encode(" abnø"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(CharTokenizer, TextComesBack) {
  const CharTokenizer tokenizer(kText);
  const std::vector<int32_t> ids = tokenizer.encode(kText);
  EXPECT_EQ(ids.size(), 27u);
  EXPECT_EQ(tokenizer.decode(ids), kText);
}

TEST(CharTokenizer, UnknownCharactersAreNamedWithTheirOffset) {
  const CharTokenizer tokenizer("abc");
  EXPECT_EQ(message_of<Error>([&] { tokenizer.encode("abøc"); }),
            "tokenizer 'chars': the character 'ø' at offset 2 is not among the 3 of the vocabulary");
  EXPECT_EQ(message_of<Error>([&] { tokenizer.encode("\n"); }),
            "tokenizer 'chars': the character '\\n' at offset 0 is not among the 3 of the vocabulary");
}

TEST(CharTokenizer, InvalidUtf8IsNamedWithItsOffset) {
  const std::string wanted = "tokenizer 'chars': no UTF-8 at offset 2 of the text, want UTF-8 or the tokenizer 'bytes'";
  EXPECT_EQ(message_of<Error>([] { CharTokenizer("ab\xff"); }), wanted);
  EXPECT_EQ(message_of<Error>([] { CharTokenizer("abc").encode("ab\xc3"); }), wanted);
}

TEST(CharTokenizer, AnEmptyTextIsRefused) {
  EXPECT_EQ(message_of<Error>([] { CharTokenizer(""); }),
            "tokenizer 'chars': the text is empty, want at least one character");
}

TEST(Tokenizer, IdsOutsideOfTheVocabularyAreRefused) {
  const ByteTokenizer bytes;
  const CharTokenizer chars("abc");
  EXPECT_EQ(message_of<Error>([&] { bytes.decode(std::vector<int32_t>{256}); }),
            "decode: token id 256 is outside of the vocabulary, want 0 to 255");
  EXPECT_EQ(message_of<Error>([&] { chars.decode(std::vector<int32_t>{-1}); }),
            "decode: token id -1 is outside of the vocabulary, want 0 to 2");
}

TEST(Tokenizer, NamesMakeTokenizers) {
  EXPECT_EQ(make_tokenizer("bytes", "")->name(), "bytes");
  EXPECT_EQ(make_tokenizer("chars", "ab")->vocabulary_size(), 2);
  EXPECT_EQ(message_of<UsageError>([] { make_tokenizer("byte", ""); }),
            "unknown tokenizer 'byte': nearest is 'bytes'; known: bytes, chars");
}

TEST(Tokenizer, JsonComesBack) {
  for (const char* name : {"bytes", "chars"}) {
    const auto tokenizer = make_tokenizer(name, kText);
    const auto read = tokenizer_from_json(parse_json(tokenizer->to_json().dump(), "f"));
    EXPECT_EQ(read->name(), name);
    EXPECT_EQ(read->encode(kText), tokenizer->encode(kText));
  }
}

TEST(Tokenizer, OurModelWithMoreAroundItIsNotOurs) {
  for (const char* name : {"bytes", "chars"}) {
    json file = make_tokenizer(name, "e\u0301\u00e9")->to_json();
    file["normalizer"] = {{"type", "NFC"}};
    if (std::string(name) == "bytes")
      EXPECT_EQ(tokenizer_from_json(file, "f")->encode("e\u0301"), ByteTokenizer().encode("\u00e9"));
    else
      EXPECT_NE(message_of<Error>([&] { tokenizer_from_json(file, "f"); }).find("another normalizer"),
                std::string::npos);
  }
}

TEST(Tokenizer, JsonOfOtherKindsIsRefused) {
  const auto refused = [](const json& value) { return message_of<Error>([&] { tokenizer_from_json(value, "f"); }); };
  const auto chars = [](json vocabulary) { return json{{"model", {{"type", "WordLevel"}, {"vocab", vocabulary}}}}; };
  EXPECT_EQ(refused(3), "f: has no object 'model'");
  EXPECT_EQ(refused({{"model", 3}}), "f: has no object 'model'");
  EXPECT_EQ(refused({{"model", {{"type", "Unigram"}}}}),
            "f: the model 'Unigram' is not supported; known: BPE, WordLevel of characters");
  json merges = ByteTokenizer().to_json();
  merges["model"]["merges"] = {"a b"};
  EXPECT_EQ(refused(merges), "f: merge 0 is '\"a b\"', and 'ab' is not in the vocabulary");
  EXPECT_EQ(refused(chars(3)), "f: model.vocab is no object");
  EXPECT_EQ(refused(chars({{"a", 1}})), "f: the id of 'a' is '1', want each of 0 to 0 once");
  EXPECT_EQ(refused(chars({{"a", 0}, {"b", 0}})), "f: the id of 'b' is '0', want each of 0 to 1 once");
  EXPECT_EQ(refused(chars({{"a", -1}})), "f: the id of 'a' is '-1', want each of 0 to 0 once");
  EXPECT_EQ(refused(chars({{"ab", 0}})), "f: the entry 'ab' is not one character");
  EXPECT_EQ(refused(chars({{"", 0}})), "f: the entry '' is not one character");
  EXPECT_EQ(refused(chars({{"a", 1}, {"b", 0}})), "f: the characters are not in the order of their bytes");
  EXPECT_EQ(refused(chars(json::object())), "tokenizer 'chars': the text is empty, want at least one character");
}

}  // namespace
}  // namespace motet
