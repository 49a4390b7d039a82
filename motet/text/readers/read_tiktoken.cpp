#include <charconv>

#include "motet/core/error.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/load.h"
#include "motet/text/readers/vectors_kinds.h"

namespace motet {
namespace {

using nlohmann::json;

// The encodings by their number of ranks, and their special tokens.
struct Encoding {
  size_t ranks;
  std::string pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> all = {
      {50256, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {50280, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {100256,
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998,
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}}};
  return all;
}

std::string from_base64(std::string_view text, size_t line, const std::string& where) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = digits.find(c);
    if (digit == digits.npos) fail(where, ": line ", line, " has no base64 at ", quote(text));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 255);
    }
  }
  return out;
}

std::string characters_of(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_character(static_cast<unsigned char>(byte));
  return out;
}

json frame_of(const std::string& pattern, const std::vector<AddedToken>& added) {
  json tokens = json::array();
  for (const AddedToken& token : added) {
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"special", true},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}});
  }
  const auto byte_level = [](bool regex) {
    return json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", regex}};
  };
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}}},
          {"post_processor", nullptr},
          {"decoder", byte_level(true)},
          {"model", {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}, {"ignore_merges", true}}}};
}

size_t one_byte(std::string_view, size_t) { return 1; }

std::vector<RankedPiece> read_lines(std::string_view text, const std::string& where) {
  std::vector<RankedPiece> out;
  size_t line = 0;
  while (!text.empty()) {
    ++line;
    std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    const size_t space = row.find(' ');
    uint32_t rank = 0;
    const std::string_view digits = space == row.npos ? std::string_view() : row.substr(space + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error != std::errc() || end != digits.data() + digits.size() || rank >= (1 << 24)) {
      fail(where, ": line ", line, " is ", quote(row), ", want a token in base64, a space and its rank");
    }
    std::string token = from_base64(row.substr(0, space), line, where);
    if (token.empty()) fail(where, ": line ", line, " has an empty token");
    out.push_back({std::move(token), static_cast<int32_t>(rank), rank});
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> read_tiktoken(std::string_view text, const std::string& where, const std::string& pattern) {
  const std::vector<RankedPiece> pieces = read_lines(text, where);
  PipelineParts parts;
  std::string cut = pattern;
  for (const Encoding& encoding : encodings()) {
    if (!pattern.empty() || encoding.ranks != pieces.size()) continue;
    cut = encoding.pattern;
    for (const auto& [content, id] : encoding.special)
      parts.added.push_back({.id = id, .content = content, .special = true});
  }
  if (cut.empty())
    fail(where, ": ", pieces.size(), " tokens are those of no known encoding; known: 50256, 50280, 100256, 199998");
  BpeModel& model = parts.model;
  model.ignore_merges = true;  // a whole piece that is a token is that token
  for (const RankedPiece& piece : pieces) {
    const auto id = static_cast<size_t>(piece.symbol);
    if (id >= model.pieces.size()) model.pieces.resize(id + 1);
    if (!model.pieces[id].empty()) fail(where, ": the rank ", id, " is there twice");
    if (!model.vocabulary.add(piece.text, piece.symbol))
      fail(where, ": the token ", quote(piece.text), " is there twice");
    model.pieces[id] = characters_of(piece.text);
    if (piece.text.size() == 1) model.byte_ids[static_cast<unsigned char>(piece.text[0])] = piece.symbol;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (model.byte_ids[static_cast<size_t>(byte)] < 0) fail(where, ": the byte ", byte, " is no token");
  }
  merges_from_ranks(model, pieces, one_byte, where);
  parts.frame = frame_of(cut, parts.added);
  const auto& steps = parts.frame["pre_tokenizer"];
  parts.pre_tokenizers = read_pre_tokenizers(steps, where);
  parts.decoders = read_decoders(parts.frame["decoder"], where);
  return std::make_unique<PipelineTokenizer>(std::move(parts), where);
}

}  // namespace motet
