#include <algorithm>
#include <cmath>
#include <map>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/pipeline/pipeline.h"
#include "motet/text/readers/sentence_piece_frame.h"
#include "motet/text/readers/vectors.h"
#include "motet/text/readers/vectors_kinds.h"

namespace motet {
namespace {

using nlohmann::json;
using Type = TokenizerVectors::Type;

const std::string kSpace = "\xE2\x96\x81";

// A space in front of the text, unless an added token stands before it.
class FirstPrefix : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    if (text.text().empty() || text.begin() != 0) return;
    std::vector<TextSpan> spans;
    if (text.tracked()) {
      spans.assign(1, {text.origin()[0].begin, text.origin()[0].begin});
      spans.insert(spans.end(), text.origin(), text.origin() + text.text().size());
    }
    text.replace(" " + std::string(text.text()), std::move(spans));
  }
};

size_t character_size(std::string_view text, size_t at) { return code_point(text, at).size; }

// The place of each score among all of them, the highest first; equal scores share one.
std::map<float, uint32_t, std::greater<>> ranks_of(const TokenizerVectors& vectors, const std::string& where) {
  std::map<float, uint32_t, std::greater<>> ranks;
  for (const float score : vectors.scores) {
    if (!std::isfinite(score)) fail(where, ": a score is ", score, ", want a number");
    ranks.emplace(score, 0);
  }
  uint32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  return ranks;
}

// SentencePiece itself looks for the piece in the normalised text, llama.cpp for its text before anything else happens.
void add_user_defined(PipelineParts& parts, const TokenizerVectors& vectors, int32_t id, const std::string& where) {
  const std::string& token = vectors.tokens[static_cast<size_t>(id)];
  if (vectors.parse_control) {
    std::string content;
    for (size_t at = 0; at < token.size();) {
      const bool space = token.compare(at, kSpace.size(), kSpace) == 0;
      content += space ? ' ' : token[at];
      at += space ? kSpace.size() : 1;
    }
    parts.added.push_back({.id = id, .content = content});
  } else if (token.find(' ') != token.npos && vectors.collapse_spaces) {
    fail(where, ": the user-defined piece ", quote(token), " has a space, which remove_extra_whitespaces must keep; ",
         "not supported");
  } else {
    parts.added.push_back({.id = id, .content = token, .normalized = true});
  }
}

}  // namespace

void merges_from_ranks(BpeModel& model, const std::vector<RankedPiece>& pieces,
                       size_t (*unit)(std::string_view text, size_t at), const std::string& where) {
  constexpr size_t kMostWork = 2'000'000'000;
  size_t work = 0;
  for (const RankedPiece& piece : pieces) {
    work += piece.text.size() * piece.text.size();
    if (work > kMostWork)
      fail(where, ": the piece ", quote(piece.text), " has ", piece.text.size(),
           " bytes, and all are too long together");
    for (size_t at = unit(piece.text, 0); at < piece.text.size(); at += unit(piece.text, at)) {
      const int32_t left = model.id_of(std::string_view(piece.text).substr(0, at));
      const int32_t right = left < 0 ? -1 : model.id_of(std::string_view(piece.text).substr(at));
      if (right >= 0) model.merges.set(left, right, {piece.rank, piece.symbol});
    }
  }
}

json post_processor_of(const TokenizerVectors& vectors, const std::string& where) {
  if (vectors.bos < 0 && vectors.eos < 0) return nullptr;
  json names = json::object(), around = json::array();
  const auto add = [&](int32_t id) {
    if (id < 0) return;
    if (static_cast<size_t>(id) >= vectors.tokens.size())
      fail(where, ": the special id ", id, " is outside of the vocabulary");
    const std::string& name = vectors.tokens[static_cast<size_t>(id)];
    names[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
    around.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
  };
  add(vectors.bos);
  around.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(vectors.eos);
  return {{"type", "TemplateProcessing"}, {"single", around}, {"pair", around}, {"special_tokens", names}};
}

std::unique_ptr<Tokenizer> llama_from_vectors(const TokenizerVectors& vectors, const std::string& where) {
  if (vectors.scores.size() != vectors.tokens.size()) {
    fail(where, ": ", vectors.scores.size(), " scores for ", vectors.tokens.size(), " tokens");
  }
  PipelineParts parts;
  BpeModel& model = parts.model;
  model.start = BpeModel::Start::sentence_pieces;
  model.pieces = vectors.tokens;
  auto text = std::make_shared<SentencePieceText>();
  text->strip_prefix = vectors.add_space_prefix;
  text->collapse = vectors.collapse_spaces;
  text->unknown = vectors.unknown_text;
  const auto ranks = ranks_of(vectors, where);
  std::vector<RankedPiece> pieces;
  std::map<std::string, bool> seen;
  for (size_t i = 0; i < vectors.tokens.size(); ++i) {
    const std::string& token = vectors.tokens[i];
    const int32_t type = vectors.types.empty() ? Type::normal : vectors.types[i];
    const auto id = static_cast<int32_t>(i);
    if (token.empty() || utf8_invalid_at(token) != token.npos)
      fail(where, ": token ", i, " is ", quote(token), ", want UTF-8 that is not empty");
    if (!seen.emplace(token, true).second) fail(where, ": the token ", quote(token), " is there twice");
    text->kinds.push_back(static_cast<SentencePieceText::Kind>(std::clamp(type, 1, 6) - 1));
    switch (type) {
      case Type::normal:
        model.vocabulary.add(token, id);
        pieces.push_back({token, id, ranks.at(vectors.scores[i])});
        break;
      case Type::unknown:
        model.unknown = id;
        break;
      case Type::control:
        if (vectors.parse_control) parts.added.push_back({.id = id, .content = token, .special = true});
        break;
      case Type::user_defined:
        add_user_defined(parts, vectors, id, where);
        break;
      case Type::byte: {
        const int byte = byte_of_token(token);
        if (byte < 0) fail(where, ": token ", i, " is ", quote(token), " and of type byte, want <0x00> to <0xFF>");
        model.byte_ids[static_cast<size_t>(byte)] = id;
        break;
      }
      default:
        fail(where, ": token ", i, " has the type ", type, ", which is not supported; known: 1, 2, 3, 4, 6");
    }
  }
  const auto bytes = std::count_if(model.byte_ids.begin(), model.byte_ids.end(), [](int32_t id) { return id >= 0; });
  if (bytes != 0 && bytes != 256) fail(where, ": ", bytes, " tokens of type byte, want 256 or none");
  model.byte_fallback = bytes == 256;
  if (!model.byte_fallback && model.unknown < 0) fail(where, ": neither bytes nor an unknown token, want one of them");
  // Characters that are only parts of pieces get ids behind all pieces.
  auto next = static_cast<int32_t>(model.pieces.size());
  for (const RankedPiece& piece : pieces) {
    for (size_t at = 0; at < piece.text.size(); at += character_size(piece.text, at)) {
      if (model.vocabulary.add(piece.text.substr(at, character_size(piece.text, at)), next)) ++next;
    }
  }
  merges_from_ranks(model, pieces, character_size, where);
  const json around = post_processor_of(vectors, where);
  parts.post_processor = read_post_processor(around, where);
  set_sentence_piece_frame(parts, vectors, around);
  if (vectors.collapse_spaces) parts.normalizers.push_back(collapse_spaces());
  if (vectors.add_space_prefix && vectors.parse_control) {
    for (const auto& step : read_normalizers({{"type", "Prepend"}, {"prepend", " "}}, where))
      parts.normalizers.push_back(step);
  } else if (vectors.add_space_prefix) {
    parts.normalizers.push_back(std::make_shared<FirstPrefix>());
  }
  for (const auto& step :
       read_normalizers({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}}, where))
    parts.normalizers.push_back(step);
  parts.sentence_piece = text;
  return std::make_unique<PipelineTokenizer>(std::move(parts), where);
}

std::unique_ptr<Tokenizer> tokenizer_from_vectors(const TokenizerVectors& vectors, const std::string& where) {
  if (vectors.tokens.empty() || vectors.tokens.size() > (1 << 24))
    fail(where, ": ", vectors.tokens.size(), " tokens, want 1 to ", 1 << 24);
  if (!vectors.types.empty() && vectors.types.size() != vectors.tokens.size()) {
    fail(where, ": ", vectors.types.size(), " token types for ", vectors.tokens.size(), " tokens");
  }
  if (vectors.kind == "gpt2") return gpt2_from_vectors(vectors, where);
  if (vectors.kind == "llama") return llama_from_vectors(vectors, where);
  fail(where, ": ", unknown_name("tokenizer model", vectors.kind, {"gpt2", "llama"}));
}

}  // namespace motet
