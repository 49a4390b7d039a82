#include "motet/text/pipeline/pipeline.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/core/utf8.h"
#include "motet/formats/json.h"
#include "motet/text/bpe/bpe_trainer.h"
#include "motet/text/pipeline/stream_decoder.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;
using Ids = std::vector<int32_t>;

// 256 bytes (ids 1 to 256), "he", "hel", "lo", "Ġt" behind them, <|end|> as id 0.
json small() {
  json vocabulary = json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_character(static_cast<unsigned char>(byte))] = byte + 1;
  const std::vector<std::pair<std::string, std::string>> pairs = {{"h", "e"}, {"he", "l"}, {"l", "o"}, {"Ġ", "t"}};
  json merges = json::array();
  int id = 257;
  for (const auto& [left, right] : pairs) {
    vocabulary[left + right] = id++;
    merges.push_back(left + " " + right);
  }
  return {{"added_tokens", {{{"id", 0}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", true}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

std::unique_ptr<PipelineTokenizer> read(const json& value) { return read_pipeline(value, "f"); }
std::string refused(const json& value) {
  return message_of<Error>([&] { read(value); });
}

// Addresses of so many bytes, without the memory.
class UntouchedText {
 public:
  explicit UntouchedText(size_t size) : size_(size) {
    address_ = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~UntouchedText() { ::munmap(address_, size_); }
  UntouchedText(const UntouchedText&) = delete;
  std::string_view text() const { return {static_cast<const char*>(address_), size_}; }

 private:
  size_t size_;
  void* address_;
};

TEST(Pipeline, ATextOfTwoGigabytesIsRefusedInOneLine) {
  const auto tokenizer = read_pipeline(small(), "f");
  const UntouchedText text(size_t{1} << 31);
  const std::string wanted = "encode: a text of 2147483648 bytes, want at most 2147483647";
  EXPECT_EQ(message_of<Error>([&] { tokenizer->encode(text.text()); }), wanted);
  EXPECT_EQ(message_of<Error>([&] { tokenizer->tokens(text.text(), {}); }), wanted);
  BpeEncoder encoder(tokenizer->parts().model);
  std::vector<int32_t> ids;
  EXPECT_EQ(message_of<Error>([&] { encoder.encode(text.text().substr(0, (1 << 28) + 1), ids); }),
            "encode: 268435457 bytes without a place to cut, want at most 268435456");
}

// Gives these pieces of any text, and counts those that were taken.
struct GivenPieces : PreTokenizer {
  std::vector<std::string_view> pieces;
  mutable size_t taken = 0;
  void split(const TextPiece&, PieceSink& out) const override {
    for (const std::string_view piece : pieces) out.piece({piece}), ++taken;
  }
};

TEST(Pipeline, MoreIdsThanAreWantedAreNotMade) {
  const auto given = std::make_shared<GivenPieces>();
  PipelineParts parts = read(small())->parts();
  parts.pre_tokenizers.steps = {given};
  const PipelineTokenizer tokenizer(parts, "f");
  given->pieces.assign(3, "hello");  // two ids each
  EXPECT_EQ(tokenizer.encode_at_most("any", 6), tokenizer.encode("any"));
  EXPECT_EQ(tokenizer.encode_at_most("any", 5), std::nullopt);
  given->pieces.assign(1000, "hello"), given->taken = 0;
  EXPECT_EQ(tokenizer.encode_at_most("any", 10), std::nullopt);
  EXPECT_EQ(given->taken, 5u);
  const UntouchedText longer((size_t{1} << 28) + 1);  // than can be encoded
  given->pieces = {longer.text()};
  EXPECT_EQ(tokenizer.encode_at_most("any", 1000), std::nullopt);
  parts.model.byte_ids['h'] = -1;  // and is left out
  const PipelineTokenizer without(parts, "f");
  const std::string left_out(1000, 'h');
  given->pieces = {left_out};
  EXPECT_EQ(without.encode_at_most("any", 10), Ids());
}

TEST(Pipeline, MergesFollowTheirRanks) {
  const auto tokenizer = read(small());
  EXPECT_EQ(tokenizer->encode("hello t"), (Ids{258, 259, 260}));
  EXPECT_EQ(tokenizer->text(Ids{258, 259, 260}, false), "hello t");
  EXPECT_EQ(tokenizer->vocabulary_size(), 261);
}

TEST(Pipeline, OffsetsAreBytesOfTheTextWithoutTheSpace) {
  const auto tokens = read(small())->tokens("e\xCC\x81 t", {});  // e and an accent become one character of two bytes
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].span, (TextSpan{0, 1}));
  EXPECT_EQ(tokens[2].span, (TextSpan{4, 5}));
}

TEST(Pipeline, SpecialTokensAreFoundOrPlain) {
  const auto tokenizer = read(small());
  EXPECT_EQ(tokenizer->encode("he<|end|>lo"), (Ids{257, 0, 259}));
  const std::string_view text = "<|end|>";
  EXPECT_GT(tokenizer->encode_all(std::span(&text, 1), 1, {.parse_special = false})[0].size(), 1u);
  EXPECT_EQ(tokenizer->text(Ids{0, 257}, true), "he");
  EXPECT_EQ(tokenizer->text(Ids{0, 257}, false), "<|end|>he");
}

TEST(Pipeline, InvalidUtf8BecomesReplacementCharactersWithTheirPlaces) {
  const auto tokenizer = read(small());
  EXPECT_EQ(tokenizer->encode("a\xff"), tokenizer->encode("a\uFFFD"));
  const auto tokens = tokenizer->tokens(
      "a\xff"
      "b",
      {});
  EXPECT_EQ(tokens.back().span, (TextSpan{2, 3}));
}

TEST(Pipeline, ThreadsGiveTheIdsOfOne) {
  const auto tokenizer = read(small());
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back("hello t " + std::to_string(i));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  EXPECT_EQ(tokenizer->encode_all(views, 1, {}), tokenizer->encode_all(views, 4, {}));
}

TEST(Pipeline, JsonComesBack) {
  const auto tokenizer = read(small());
  const auto again = read(parse_json(tokenizer->to_json().dump(), "f"));
  EXPECT_EQ(again->encode("hello the hell"), tokenizer->encode("hello the hell"));
}

TEST(Pipeline, MergesOfPiecesThatAreNoBytesComeBack) {
  json value = small();
  value["model"]["vocab"]["\u20AC"] = 300, value["model"]["vocab"]["h\u20AC"] = 301;
  value["model"]["merges"].push_back("h \u20AC");
  const json again = read(value)->to_json();
  EXPECT_EQ(again["model"]["merges"].back(), json::array({"h", "\u20AC"}));
  EXPECT_EQ(read(again)->encode("hello h\u20AC"), read(small())->encode("hello h\u20AC"));
}

TEST(Pipeline, LongTextsOfOneKindTakeLinearTime) {
  const auto tokenizer = read(small());
  for (const char* piece : {"a", " ", "1", "\xCC\x81", "h", "\n", " \n"}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    EXPECT_EQ(tokenizer->text(tokenizer->encode(text), false).size(), text.size()) << piece;
  }
}

// The pieces that Split makes of a text, joined by '|'.
std::string split(const char* pattern, const char* behavior, bool invert, std::string_view text) {
  struct Joined : PieceSink {
    std::string all;
    void piece(const TextPiece& piece) override { all += (all.empty() ? "" : "|") + std::string(piece.text); }
  } out;
  const json rule = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
  pre_tokenize(read_pre_tokenizers(rule, "f"), {text}, out);
  return out.all;
}

// As tokenizers 0.23.
TEST(Pipeline, MatchesOfNothingCut) {
  const char* const thousands = R"((?=(\d{3})+(?!\d)))";
  for (const char* behavior : {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    EXPECT_EQ(split(thousands, behavior, false, "1234567"), "1|234|567") << behavior;
    EXPECT_EQ(split(R"((?<=\p{Ll})(?=\p{Lu}))", behavior, false, "camelCase helloWorld"), "camel|Case hello|World");
    EXPECT_EQ(split("$", behavior, false, "ab"), "ab") << behavior;
  }
  EXPECT_EQ(split(thousands, "Removed", true, "1234567"), "");
  EXPECT_EQ(split("\\d*", "Removed", false, "a12b"), "a|b");
  EXPECT_EQ(split("\\d*", "MergedWithPrevious", false, "a12b"), "a12|b");
  EXPECT_EQ(split("\\d*", "MergedWithPrevious", true, "a12b"), "a|12b");
  EXPECT_EQ(split("\\d*", "MergedWithNext", true, "a12b"), "a12|b");
}

// As tokenizers 0.23.
TEST(Pipeline, AMatchOfNothingIsReplaced) {
  const auto replaced = [](const char* pattern, std::string_view text) {
    return normalized(read_normalizers({{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", "_"}}, "f"),
                      text);
  };
  EXPECT_EQ(replaced("^", "hello"), "_hello");
  EXPECT_EQ(replaced("$", "hello"), "hello_");
  EXPECT_EQ(replaced("l*", "hello"), "_h_e_o_");
  EXPECT_EQ(replaced("^", ""), "");
  EXPECT_EQ(replaced("^", "a\n\nb\n"), "_a\n_\n_b\n");
  EXPECT_EQ(replaced("$", "a\n"), "a_\n_");
}

// As tokenizers 0.23.
TEST(Pipeline, AddedTokensAreDecodedAsTheyAreFound) {
  json value = small();
  value["normalizer"] = {{"type", "Lowercase"}};
  value["added_tokens"].push_back({{"id", 261}, {"content", "Ab C"}, {"normalized", true}});
  value["added_tokens"].push_back({{"id", 262}, {"content", "Xy Z"}, {"normalized", false}});
  const auto tokenizer = read(value);
  EXPECT_EQ(tokenizer->encode("AB cXy Z"), (Ids{261, 262}));
  EXPECT_EQ(tokenizer->text(Ids{261, 262}, false), "ab cXy Z");
  EXPECT_EQ(tokenizer->piece(261), "Ab C");  // by which others find it
  EXPECT_EQ(tokenizer->to_json()["added_tokens"][1]["content"], "Ab C");
}

json with_added(const std::vector<json>& tokens) {
  json all = small();
  for (json token : tokens) {
    token["special"] = true;
    all["added_tokens"].push_back(token);
  }
  return all;
}

// As the tokenizers package.
TEST(Pipeline, AnAddedTokenTakesNoSpaceThatAnotherHas) {
  const auto wide = read(with_added({{{"id", 261}, {"content", "  "}, {"lstrip", true}, {"rstrip", true}}}));
  EXPECT_EQ(wide->encode("h    e"), (Ids{'h' + 1, 261, 'e' + 1}));
  const auto two = read(with_added(
      {{{"id", 261}, {"content", "<m>"}, {"rstrip", true}}, {{"id", 262}, {"content", " t"}, {"lstrip", true}}}));
  const auto tokens = two->tokens("<m>  th", {});
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].id, 261);
  EXPECT_EQ(tokens[0].span, (TextSpan{0, 3}));  // trimmed
  EXPECT_EQ(tokens[1].id, 262);
  EXPECT_EQ(tokens[1].span, (TextSpan{5, 6}));
  const auto mask = read(with_added({{{"id", 261}, {"content", "<m>"}, {"lstrip", true}}}));
  EXPECT_EQ(mask->tokens("h  <m>", {}).at(1).span, (TextSpan{3, 6}));
}

// As the tokenizers package numbers them.
TEST(Pipeline, AddedTokensAreNumberedOn) {
  const auto tokenizer = read(with_added({{{"id", 280}, {"content", "<b>"}},
                                          {{"id", 262}, {"content", ""}},
                                          {{"id", 261}, {"content", "<a>"}},
                                          {{"id", 270}, {"content", "he"}}}));
  EXPECT_EQ(tokenizer->encode("<a><b>he<|end|>"), (Ids{262, 261, 257, 0}));
}

TEST(Pipeline, WhatIsNotSupportedIsNamed) {
  const auto with = [](const char* name, json value) {
    json all = small();
    all[name] = std::move(value);
    return refused(all);
  };
  EXPECT_EQ(with("normalizer", {{"type", "Nmt"}}),
            "f: normalizer: the normalizer 'Nmt' is not supported; known: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, "
            "Replace, Strip, Sequence");
  EXPECT_EQ(with("pre_tokenizer", {{"type", "UnicodeScripts"}}).substr(0, 67),
            "f: pre_tokenizer: the pre-tokenizer 'UnicodeScripts' is not support");
  EXPECT_EQ(with("post_processor", {{"type", "BertProcessing"}}).substr(0, 69),
            "f: post_processor: the post-processor 'BertProcessing' is not support");
  EXPECT_EQ(with("decoder", {{"type", "CTC"}}).substr(0, 41), "f: decoder: the decoder 'CTC' is not supp");
  json dropout = small();
  dropout["model"]["dropout"] = 0.1;
  EXPECT_EQ(refused(dropout), "f: model.dropout is '0.1', want null: ids must not be random");
}

TEST(Pipeline, BrokenModelsAreRefused) {
  json value = small();
  value["model"]["merges"].push_back("x yz");
  EXPECT_EQ(refused(value), "f: merge 4 is '\"x yz\"', and 'yz' is not in the vocabulary");
  value = small();
  value["model"]["vocab"]["new"] = 5;
  EXPECT_EQ(refused(value).substr(0, 24), "f: the id 5 belongs to '");
  value["model"]["vocab"]["new"] = -5;
  EXPECT_EQ(refused(value), "f: the id of 'new' is '-5', want 0 to 16777215");
  value["model"]["vocab"]["new"] = 1e300;
  EXPECT_EQ(refused(value), "f: the id of 'new' is '1e+300', want 0 to 16777215");
  value = small();
  value["added_tokens"][0]["id"] = 1LL << 40;
  EXPECT_EQ(refused(value), "f: the added token '<|end|>' has the id 1099511627776, want 0 to 16777215");
  value = small();
  value["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_EQ(refused(value), "f: pre_tokenizer: the pattern '(a' lacks a ')' (at byte 2)");
}

// Sequences inside of sequences, as deep as JSON allows: an error, no overflow of the stack.
TEST(Pipeline, DeepSequencesAreRefused) {
  json inner = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) inner = {{"type", "Sequence"}, {"normalizers", json::array({inner})}};
  json value = small();
  value["normalizer"] = inner;
  EXPECT_NE(refused(value), "");
}

TEST(Pipeline, FilesThatAreCutOrChangedNeverCrash) {
  const std::string file = small().dump();
  int read_well = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      const auto tokenizer = tokenizer_from_json(parse_json(bytes, "f"), "f");
      tokenizer->text(tokenizer->encode("hello \xff t\u0301<|end|>"), false);
      ++read_well;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  };
  for (size_t size = 0; size < file.size(); size += 7) attempt(file.substr(0, size));
  EXPECT_EQ(read_well, 0);
  std::mt19937 random(1);
  for (int round = 0; round < 1500; ++round) {
    std::string changed = file;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % changed.size();
      const char* signs = "\"{}[]:,0123456789nulltrue-e.\\";
      switch (random() % 3) {
        case 0:
          changed[at] = signs[random() % 29];
          break;
        case 1:
          changed.erase(at, random() % 40);
          break;
        default:
          changed.insert(at, changed.substr(random() % changed.size(), random() % 40));
      }
      if (changed.empty()) changed = "{";
    }
    attempt(changed);
  }
}

TEST(Pipeline, RandomBytesComeBackThroughValidStreams) {
  const auto tokenizer = read(small());
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += static_cast<char>(random() % 3 ? random() % 256 : " helot\n"[random() % 7]);
    StreamDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : tokenizer->encode(text)) {
      shown += stream.push(id);
      ASSERT_EQ(utf8_invalid_at(shown), std::string::npos);
    }
    EXPECT_EQ(shown + stream.flush(), tokenizer->text(tokenizer->encode(text), false));
  }
}

TEST(BpeTrainer, PartsDoNotMatter) {
  std::string all;
  for (int i = 0; i < 300; ++i) all += "the cat sat on the mat,\nthe theory " + std::to_string(i) + " \u65E5\u672C\n";
  BpeTrainer whole, parts;
  whole.add(all);
  for (size_t at = 0; at < all.size(); at += 97) parts.add(std::string_view(all).substr(at, 97));
  const auto one = whole.finish(300), other = parts.finish(300);
  EXPECT_EQ(one->to_json(), other->to_json());
  EXPECT_EQ(one->vocabulary_size(), 300);
  EXPECT_EQ(one->text(one->encode(all), false), all);
  EXPECT_LT(one->encode(all).size(), all.size() / 2);
  EXPECT_EQ(read_pipeline(one->to_json(), "f")->encode(all), one->encode(all));
}

TEST(BpeTrainer, StopsWhenNoPairComesTwice) {
  BpeTrainer trainer;
  trainer.add("abab");
  EXPECT_EQ(trainer.finish(1000)->vocabulary_size(), 258);
  EXPECT_EQ(message_of<Error>([] { BpeTrainer().finish(300); }), "the text is empty, want some to learn from");
  EXPECT_EQ(message_of<UsageError>([] { BpeTrainer().finish(256); }),
            "--vocab-size: 256 is outside of 257 to 16777216: 256 bytes and <|endoftext|> are always there");
}

// "hello" is in the vocabulary, and no chain of merges makes it.
TEST(Pipeline, AWholePieceIsItsTokenOnlyWhereMergesAreIgnored) {
  json value = small();
  value["model"]["vocab"]["hello"] = 261;
  for (const bool ignore : {false, true}) {
    value["model"]["ignore_merges"] = ignore;
    const auto tokenizer = read(value);
    EXPECT_EQ(tokenizer->encode("hello"), ignore ? Ids{261} : (Ids{258, 259})) << ignore;  // "hel", "lo"
    EXPECT_EQ(tokenizer->encode("hello!"), ignore ? (Ids{261, 1 + '!'}) : (Ids{258, 259, 1 + '!'}));
    EXPECT_EQ(read(tokenizer->to_json())->encode("hello"), tokenizer->encode("hello"));
  }
  value["model"].erase("ignore_merges");
  EXPECT_EQ(read(value)->encode("hello"), (Ids{258, 259}));
}

// The merges of the definition: of the pairs that come most often the one with the lowest ids, as long as one comes
// twice. Few letters in short words, so that many pairs tie.
std::vector<std::pair<int32_t, int32_t>> naive_merges(const std::vector<std::string>& words, int32_t next_id) {
  std::vector<Ids> symbols;
  for (const std::string& word : words) {
    symbols.emplace_back();
    for (const char byte : word) symbols.back().push_back(1 + static_cast<unsigned char>(byte));
  }
  std::vector<std::pair<int32_t, int32_t>> merges;
  while (true) {
    std::map<std::pair<int32_t, int32_t>, int> counts;
    for (const Ids& word : symbols)
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    const auto best = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    if (best == counts.end() || best->second < 2) return merges;  // a map is ordered: the first of equal counts
    merges.push_back(best->first);
    for (Ids& word : symbols)
      for (size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == best->first.first && word[i + 1] == best->first.second) {
          word[i] = next_id;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
    ++next_id;
  }
}

TEST(BpeTrainer, LearnsTheMostFrequentPairAndOfEqualOnesTheLowestIds) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> words;
    std::string text;
    for (int i = 0; i < 25; ++i) {
      std::string word(i == 0 ? "" : " ");
      for (size_t size = 1 + random() % 6; size > 0; --size) word += static_cast<char>('a' + random() % 4);
      words.push_back(word);
      text += word;
    }
    BpeTrainer trainer;
    trainer.add(text);
    const json model = trainer.finish(400, {})->to_json()["model"];
    std::vector<std::string> pieces(model["vocab"].size() + 1);
    for (const auto& [piece, id] : model["vocab"].items()) pieces.at(id.get<size_t>()) = piece;
    const auto wanted = naive_merges(words, 257);
    ASSERT_EQ(model["merges"].size(), wanted.size()) << text;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto& [left, right] = wanted[i];
      const json& have = model["merges"][i];
      const std::string pair =
          have.is_array() ? have[0].get<std::string>() + " " + have[1].get<std::string>() : have.get<std::string>();
      ASSERT_EQ(pair, pieces.at(static_cast<size_t>(left)) + " " + pieces.at(static_cast<size_t>(right))) << i;
    }
  }
}

}  // namespace
}  // namespace motet
