#include "motet/text/readers/vectors.h"

#include <bit>
#include <cmath>
#include <random>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/gguf_testing.h"
#include "motet/text/pipeline/stream_decoder.h"
#include "motet/text/readers/load.h"

namespace motet {
namespace {

using testing::message_of;
using Ids = std::vector<int32_t>;

// <unk> <s> </s>, 256 bytes, then pieces.
TokenizerVectors llama() {
  TokenizerVectors out{.kind = "llama", .bos = 1};
  const auto add = [&](const std::string& token, float score, int32_t type) {
    out.tokens.push_back(token);
    out.scores.push_back(score);
    out.types.push_back(type);
  };
  add("<unk>", 0, TokenizerVectors::unknown);
  add("<s>", 0, TokenizerVectors::control);
  add("</s>", 0, TokenizerVectors::control);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    add(name, 0, TokenizerVectors::byte);
  }
  float score = -1;
  for (const char* piece : {"\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "abc"}) {
    add(piece, score--, TokenizerVectors::normal);
  }
  return out;
}

// Of pieces whose characters are pieces all.
TokenizerVectors whole_llama() {
  TokenizerVectors out = llama();
  out.tokens.back() = "aba";
  return out;
}

TokenizerVectors gpt2() {
  TokenizerVectors out{.kind = "gpt2", .pre = "smollm"};
  for (const char* token : {"a", "b", "1", "2", "ab", "12", "<|im_start|>"}) out.tokens.emplace_back(token);
  out.types = {1, 1, 1, 1, 1, 1, 3};
  out.merges = {"a b", "1 2"};
  return out;
}

std::string refused(const TokenizerVectors& vectors) {
  return message_of<Error>([&] { tokenizer_from_vectors(vectors, "f"); });
}

TEST(Vectors, LlamaMergesByScore) {
  const auto tokenizer = tokenizer_from_vectors(llama(), "f");
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{264}));            // a space goes before: "ab", then with its space
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{264, 3 + 'c'}));  // c is only part of a piece: its byte
  EXPECT_EQ(tokenizer->text(Ids{264, 3 + 'c'}, false), "abc");
  EXPECT_EQ(tokenizer->tokens("ab", {.add_special = true})[0].id, 1);
}

Ids with_special(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  for (const TextToken& token : tokenizer.tokens(text, {.add_special = true})) ids.push_back(token.id);
  return ids;
}

TEST(Vectors, RulesOfSentencePieceAreInItsTokenizerJson) {
  for (const bool collapse : {false, true}) {
    for (const bool prefix : {false, true}) {
      for (const int32_t eos : {-1, 2}) {
        TokenizerVectors vectors = whole_llama();
        vectors.collapse_spaces = collapse, vectors.add_space_prefix = prefix, vectors.eos = eos;
        const auto own = tokenizer_from_vectors(vectors, "f"), read = tokenizer_from_json(own->to_json());
        for (const char* text : {"  a  b ", "ab", "   ", "\n a  \n", ""})
          EXPECT_EQ(with_special(*read, text), with_special(*own, text)) << text << collapse << prefix << eos;
      }
    }
  }
  TokenizerVectors vectors = whole_llama();
  vectors.collapse_spaces = true, vectors.eos = 2;
  const auto read = tokenizer_from_json(tokenizer_from_vectors(vectors, "f")->to_json());
  EXPECT_EQ(with_special(*read, "  a  b "), (Ids{1, 263, 259, 261, 2}));
}

// The format merges pieces alone; SentencePiece merges characters first.
TEST(Vectors, APieceOfWhatIsNoPieceHasNoTokenizerJson) {
  const auto tokenizer = tokenizer_from_vectors(llama(), "f");
  EXPECT_EQ(tokenizer->encode("babc").back(), 265);
  EXPECT_EQ(message_of<Error>([&] { tokenizer->to_json(); }),
            "tokenizer.json: this tokenizer cannot be written as one: a character of the piece 'abc' is no piece");
}

// Of sentencepiece 0.2: the whole text is normalised, then the piece is found in it.
TEST(Vectors, UserDefinedPiecesAreFoundInTheNormalisedText) {
  TokenizerVectors vectors = whole_llama();
  vectors.parse_control = false, vectors.bos = -1;
  vectors.tokens.push_back("[X]"), vectors.scores.push_back(0), vectors.types.push_back(TokenizerVectors::user_defined);
  constexpr int32_t kSpace = 259, kA = 260, kWordA = 263, kX = 266;
  for (const bool collapse : {false, true}) {
    vectors.collapse_spaces = collapse;
    const auto own = tokenizer_from_vectors(vectors, "f"), read = tokenizer_from_json(own->to_json());
    for (const auto& [text, ids] : std::vector<std::pair<std::string, Ids>>{
             {"a [X] a", {kWordA, kSpace, kX, kWordA}},
             {"[X]a", {kSpace, kX, kA}},
             {"[X]", {kSpace, kX}},
             {"a[X][X] a", {kWordA, kX, kX, kWordA}},
             {"[X]  a", collapse ? Ids{kSpace, kX, kWordA} : Ids{kSpace, kX, kSpace, kWordA}},
             {"a [X] ", collapse ? Ids{kWordA, kSpace, kX} : Ids{kWordA, kSpace, kX, kSpace}},
             {"[X]<s>", {kSpace, kX, 3 + '<', 3 + 's', 3 + '>'}},
             {"a\u2581", collapse ? Ids{kWordA} : Ids{kWordA, kSpace}}}) {
      EXPECT_EQ(own->encode(text), ids) << text << collapse;
      EXPECT_EQ(read->encode(text), ids) << text << collapse;
      EXPECT_EQ(read->text(ids, false), own->text(ids, false)) << text << collapse;
    }
    EXPECT_EQ(own->tokens("a [X]", {}).back().span, (TextSpan{2, 5}));
  }
  vectors.tokens.back() = "[ X]";
  EXPECT_EQ(refused(vectors),
            "f: the user-defined piece '[ X]' has a space, which remove_extra_whitespaces must keep; not supported");
}

TEST(Vectors, LlamaStreamsTheTextOfTheWhole) {
  const auto tokenizer = tokenizer_from_vectors(llama(), "f");
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) ids.push_back(259 + static_cast<int32_t>(random() % 7));
    StreamDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : ids) shown += stream.push(id);
    EXPECT_EQ(shown + stream.flush(), tokenizer->text(ids, false));
  }
}

TEST(Vectors, ABlankBehindAControlTokenIsStreamed) {
  const auto tokenizer = tokenizer_from_vectors(llama(), "f");
  constexpr int32_t kA = 260, kWordA = 263;
  for (const Ids& ids : {Ids{kA, 1, kWordA}, Ids{1, 1, kWordA, 1, 1, kWordA, 2}}) {
    StreamDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : ids) shown += stream.push(id);
    EXPECT_EQ(shown + stream.flush(), "a a");
    EXPECT_EQ(tokenizer->text(ids, false), "a a");
  }
}

TEST(Vectors, Gpt2CutsAsItsNameSays) {
  const auto tokenizer = tokenizer_from_vectors(gpt2(), "f");
  EXPECT_EQ(tokenizer->encode("ab12"), (Ids{4, 2, 3}));  // digits one by one
  EXPECT_EQ(tokenizer->encode("<|im_start|>ab"), (Ids{6, 4}));
  TokenizerVectors other = gpt2();
  other.pre = "gpt-2";
  EXPECT_EQ(tokenizer_from_vectors(other, "f")->encode("ab12"), (Ids{4, 5}));
}

// The four expressions of llama.cpp, one behind the other.
TEST(Vectors, Gpt2WithoutANameIsCutByFourExpressions) {
  TokenizerVectors vectors{.kind = "gpt2", .pre = "default"};
  for (const char* token : {"1", "2", "11", "111", "1111", "'", "s", "'s"}) vectors.tokens.emplace_back(token);
  vectors.merges = {"1 1", "11 1", "11 11", "' s"};
  for (const char* pre : {"default", ""}) {
    vectors.pre = pre;
    const auto tokenizer = tokenizer_from_vectors(vectors, "f");
    EXPECT_EQ(tokenizer->encode("1111"), (Ids{3, 0})) << pre;  // digits by threes
    EXPECT_EQ(tokenizer->encode("'s"), (Ids{5, 6})) << pre;    // signs alone
  }
  vectors.pre = "gpt-2";
  EXPECT_EQ(tokenizer_from_vectors(vectors, "f")->encode("1111's"), (Ids{4, 7}));
}

// add_bos_token absent: llama.cpp's default for the pre-tokenizer.
TEST(Vectors, GgufWithoutAWordOfItBeginsAsLlamaCppDoes) {
  using namespace testing;
  const TemporaryFolder folder;
  const auto begins = [&](const std::string& kind, const std::string& pre, std::optional<bool> said = {}) {
    const auto words = [](const std::string& key, const std::vector<std::string>& all) {
      std::string bytes = raw(static_cast<uint32_t>(GgufType::string)) + raw<uint64_t>(all.size());
      for (const std::string& one : all) bytes += word(one);
      return entry("tokenizer.ggml." + key, GgufType::array, bytes);
    };
    const auto text = [](const std::string& key, const std::string& value) {
      return entry("tokenizer.ggml." + key, GgufType::string, word(value));
    };
    std::vector<std::string> metadata{text("model", kind), text("pre", pre), words("tokens", {"a", "b", "ab"}),
                                      words("merges", {"a b"}),
                                      entry("tokenizer.ggml.bos_token_id", GgufType::u32, raw<uint32_t>(1))};
    if (said) metadata.push_back(entry("tokenizer.ggml.add_bos_token", GgufType::boolean, raw<uint8_t>(*said)));
    std::string file = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(metadata.size());
    for (const std::string& one : metadata) file += one;
    write_file_atomic(folder / "m.gguf", file);
    return with_special(*load_tokenizer(folder / "m.gguf"), "ab") == Ids{1, 2};
  };
  for (const char* pre : {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}) {
    EXPECT_TRUE(begins("gpt2", pre)) << pre;
    EXPECT_FALSE(begins("gpt2", pre, false)) << pre;
  }
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "gpt-4o", "llama4", "dbrx", "smaug-bpe"}) {
    EXPECT_FALSE(begins("gpt2", pre)) << pre;
    EXPECT_TRUE(begins("gpt2", pre, true)) << pre;
  }
}

TEST(Vectors, LinesOfMergesMayEndAsWindowsEndsThem) {
  for (const auto& [vocabulary, merges] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    for (const std::string end : {"\n", "\r\n"}) {
      const testing::TemporaryFolder folder;
      write_file_atomic(folder / vocabulary, R"({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4})");
      write_file_atomic(folder / merges, "#version: 0.2" + end + "a b" + end + "ab c" + end);
      EXPECT_EQ(load_tokenizer(folder.path().string())->encode("abcab"), (Ids{4, 3})) << merges;
      EXPECT_EQ(load_tokenizer(folder / merges)->encode("abcab"), (Ids{4, 3})) << merges;
    }
  }
}

TEST(Vectors, BrokenListsAreRefused) {
  TokenizerVectors vectors = llama();
  vectors.kind = "bert";
  EXPECT_EQ(refused(vectors), "f: unknown tokenizer model 'bert': known: gpt2, llama");
  vectors = gpt2();
  vectors.pre = "smolm";
  EXPECT_EQ(refused(vectors).substr(0, 57), "f: unknown pre-tokenizer 'smolm': nearest is 'smollm'; kn");
  vectors = gpt2();
  vectors.merges.push_back("b a");
  EXPECT_EQ(refused(vectors), "f: merge 2 is '\"b a\"', and 'ba' is not in the vocabulary");
  vectors.merges.back() = "a \u20AC";  // no bytes
  EXPECT_EQ(refused(vectors), "f: merge 2 is '\"a \u20AC\"', and '\u20AC' is not in the vocabulary");
  vectors = llama();
  vectors.scores.pop_back();
  EXPECT_EQ(refused(vectors), "f: 265 scores for 266 tokens");
  vectors = llama();
  vectors.bos = 266;
  EXPECT_EQ(refused(vectors), "f: the special id 266 is outside of the vocabulary");
  vectors = llama();
  vectors.scores[5] = NAN;
  EXPECT_EQ(refused(vectors), "f: a score is nan, want a number");
  vectors = llama();
  vectors.tokens[260] = vectors.tokens[261];
  EXPECT_EQ(refused(vectors), "f: the token 'b' is there twice");
  vectors = llama();
  vectors.types[260] = 77;
  EXPECT_EQ(refused(vectors), "f: token 260 has the type 77, which is not supported; known: 1, 2, 3, 4, 6");
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string bytes_field(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number_field(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}

// The vectors as SentencePiece writes them.
std::string model_file(const TokenizerVectors& vectors, const std::string& unknown = "") {
  std::string out;
  for (size_t i = 0; i < vectors.tokens.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(vectors.scores[i]);
    out += bytes_field(1, bytes_field(1, vectors.tokens[i]) + '\x15' +
                              std::string(reinterpret_cast<const char*>(&bits), 4) +
                              number_field(3, static_cast<uint64_t>(vectors.types[i])));
  }
  return out + bytes_field(2, number_field(3, 2) + (unknown.empty() ? "" : bytes_field(44, unknown))) +
         bytes_field(3, bytes_field(1, "identity") + number_field(4, 0));
}

TEST(Vectors, SentencePieceFilesAreRead) {
  const auto tokenizer = tokenizer_from_vectors(read_sentence_piece(model_file(llama()), "f"), "f");
  EXPECT_EQ(tokenizer->encode("ab a"), (Ids{264, 263}));
  EXPECT_EQ(tokenizer->encode("</s>").size(), 5u);  // a control token in a text is text
  TokenizerVectors collapsing = llama();
  collapsing.collapse_spaces = true;
  const auto tokens = tokenizer_from_vectors(collapsing, "f")->tokens("ab   b", {});
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[1].span, (TextSpan{2, 5}));  // one space stands for three
  const Ids unknown{0, 264};
  ASSERT_EQ(llama().types[0], TokenizerVectors::unknown);
  EXPECT_EQ(tokenizer->text(unknown, false), " \xE2\x81\x87  ab");
  const auto other = tokenizer_from_vectors(read_sentence_piece(model_file(llama(), "??"), "f"), "f");
  EXPECT_EQ(other->text(unknown, false), "?? ab");
}

TEST(Vectors, FilesThatAreCutOrChangedNeverCrash) {
  const std::string model = model_file(llama());
  std::string bin = std::string("\x08\0\0\0", 4);
  for (const std::string& token : llama().tokens) {
    const auto size = static_cast<uint32_t>(token.size());
    bin += std::string(4, '\0') + std::string(reinterpret_cast<const char*>(&size), 4) + token;
  }
  const auto attempt = [](const std::string& bytes, bool sentence_piece) {
    try {
      const auto vectors = sentence_piece ? read_sentence_piece(bytes, "f") : read_llama2c(bytes, "f");
      const auto tokenizer = tokenizer_from_vectors(vectors, "f");
      tokenizer->text(tokenizer->encode("ab a\xff"), false);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  };
  std::mt19937 random(3);
  for (const bool sentence_piece : {true, false}) {
    const std::string& file = sentence_piece ? model : bin;
    for (size_t size = 0; size <= file.size(); ++size) attempt(file.substr(0, size), sentence_piece);
    for (int round = 0; round < 2000; ++round) {
      std::string changed = file;
      for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
      attempt(changed, sentence_piece);
    }
  }
}

TEST(Vectors, TiktokenLinesAreChecked) {
  const auto refuse = [](const std::string& text) { return message_of<Error>([&] { read_tiktoken(text, "f", "."); }); };
  EXPECT_EQ(refuse("YQ== x"), "f: line 1 is 'YQ== x', want a token in base64, a space and its rank");
  EXPECT_EQ(refuse("YQ=="), "f: line 1 is 'YQ==', want a token in base64, a space and its rank");
  EXPECT_EQ(refuse("*! 1"), "f: line 1 has no base64 at '*!'");
  EXPECT_EQ(refuse("YQ== 0\nYQ== 1"), "f: the token 'a' is there twice");
  EXPECT_EQ(refuse("YQ== 0\nYg== 0"), "f: the rank 0 is there twice");
  EXPECT_EQ(refuse("YQ== 0"), "f: the byte 0 is no token");
}

}  // namespace
}  // namespace motet
