#include "motet/text/pipeline/stream_decoder.h"

#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/core/utf8.h"

namespace motet {
namespace {

// All that a stream of bytes becomes; each piece must be valid UTF-8.
std::string streamed(const std::string& bytes) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const int32_t id : tokenizer.encode(bytes)) {
    const std::string piece = decoder.push(id);
    EXPECT_EQ(utf8_invalid_at(piece), std::string::npos);
    out += piece;
  }
  const std::string rest = decoder.flush();
  EXPECT_EQ(utf8_invalid_at(rest), std::string::npos);
  return out + rest;
}

TEST(StreamDecoder, ValidTextPassesUnchanged) {
  const std::string text = "a ø 日本語 🎵\n";
  EXPECT_EQ(streamed(text), text);
}

TEST(StreamDecoder, ACharacterAppearsWithItsLastByte) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push(0xAC), "€");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, BytesThatAreNoCharacterAreReplaced) {
  EXPECT_EQ(streamed("a\xff"
                     "b"),
            "a\uFFFDb");
  EXPECT_EQ(streamed("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(streamed("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(streamed("\xE2\xF0\x9F\x8E\xB5"), "\uFFFD🎵");
}

TEST(StreamDecoder, FlushReplacesWhatWaitedAndStartsAnew) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  decoder.push(0xE2);
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(decoder.push('a'), "a");
}

TEST(StreamDecoder, AnyBytesGiveValidUtf8AtEveryMoment) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int i = 0; i < 100; ++i) bytes += static_cast<char>(0x70 + random() % 0x90);
    streamed(bytes);
  }
}

// Bytes in a row that are no UTF-8 are U+FFFD each, also one that was shown as a character before.
TEST(StreamDecoder, WordsBehindBytesThatAreNoCharacterAreThere) {
  const auto tokenizer = tokenizer_from_json({
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"<0x0A>", 0}, {"<0xF0>", 1}, {"hello", 2}, {"<0xC3>", 3}, {"<0xA9>", 4}}},
        {"merges", nlohmann::json::array()}}},
      {"decoder", {{"type", "ByteFallback"}}},
  });
  const auto streamed = [&](const std::vector<int32_t>& ids) {
    StreamDecoder decoder(*tokenizer);
    std::string out;
    for (const int32_t id : ids) out += decoder.push(id);
    return out + decoder.flush();
  };
  EXPECT_EQ(tokenizer->text(std::vector<int32_t>{0, 1, 2}, false), "\uFFFD\uFFFDhello");  // as tokenizers 0.23
  EXPECT_EQ(streamed({0, 1, 2}), "\n\uFFFDhello");
  EXPECT_EQ(streamed({0, 1}), "\n\uFFFD");
  EXPECT_EQ(streamed({2, 0, 3, 4, 2}), "hello\n\u00E9hello");
}

TEST(StreamDecoder, AnIdOutsideOfTheVocabularyIsRefused) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(testing::message_of<Error>([&] { decoder.push(256); }),
            "decode: token id 256 is outside of the vocabulary, want 0 to 255");
}

}  // namespace
}  // namespace motet
