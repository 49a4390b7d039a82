// The tokenizers of published models: normalise, cut, byte-pair encode.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motet/text/bpe/bpe.h"
#include "motet/text/pipeline/added_tokens.h"
#include "motet/text/pipeline/decoder.h"
#include "motet/text/pipeline/normalizer.h"
#include "motet/text/pipeline/post_processor.h"
#include "motet/text/pipeline/pre_tokenizer.h"
#include "motet/text/tokenizer.h"

namespace motet {

// How SentencePiece turns ids into text.
struct SentencePieceText {
  enum class Kind : uint8_t { normal, unknown, control, user_defined, unused, byte };
  std::vector<Kind> kinds;   // of each id
  bool strip_prefix = true;  // the first piece's leading space is not there
  bool collapse = false;     // remove_extra_whitespaces
  std::string unknown;       // stands for what has no piece
};

// All parts of a tokenizer; pipeline.cpp runs them.
struct PipelineParts {
  std::vector<AddedToken> added;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  BpeModel model;
  PostProcessor post_processor;
  Decoders decoders;
  std::shared_ptr<const SentencePieceText> sentence_piece;  // decodes instead of `decoders`
  nlohmann::json frame;                                     // tokenizer.json without the vocabulary and the merges
  std::string no_frame;                                     // why there is none
};

class PipelineTokenizer : public Tokenizer {
 public:
  // Throws Error when ids of the parts lie outside of the vocabulary.
  explicit PipelineTokenizer(PipelineParts parts, const std::string& where);

  std::vector<int32_t> encode(std::string_view text) const override;
  std::optional<std::vector<int32_t>> encode_at_most(std::string_view text, size_t most) const override;
  std::vector<TextToken> tokens(std::string_view text, const EncodeOptions& options) const override;
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string_view> texts, int threads,
                                               const EncodeOptions& options) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string text(std::span<const int32_t> ids, bool skip_special) const override;
  std::string piece(int32_t id) const override;
  bool special(int32_t id) const override;
  std::span<const int32_t> before() const override { return parts_.post_processor.before; }
  bool decodes_one_by_one() const override { return parts_.decoders.bytes && !parts_.sentence_piece; }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(names_.size()); }
  std::string name() const override { return "bpe"; }
  nlohmann::json to_json() const override;

  const PipelineParts& parts() const { return parts_; }

 private:
  class Output;
  void run(std::string_view text, const EncodeOptions& options, Output& out) const;
  std::vector<std::string> pieces_of(std::span<const int32_t> ids, bool skip_special) const;

  PipelineParts parts_;
  std::vector<std::string> names_;                // of each id; added tokens replace pieces
  std::map<int32_t, std::string> changed_names_;  // added tokens of the normalised text, as that has them
  std::vector<bool> special_, added_;
  AddedTokenSearch raw_, normalized_;
  size_t longest_token_;  // of the model
};

// model.vocab of a tokenizer.json: pieces and their ids, as the file has them.
using PieceList = std::vector<std::pair<std::string, nlohmann::json>>;

// A tokenizer.json whose model is BPE; with `pieces` these are its model.vocab. Throws as tokenizer_from_json does.
std::unique_ptr<PipelineTokenizer> read_pipeline(const nlohmann::json& json, const std::string& where,
                                                 const PieceList* pieces = nullptr);

// The text of SentencePiece's ids, given the pieces.
std::string sentence_piece_text(const SentencePieceText& rules, std::span<const int32_t> ids,
                                const std::vector<std::string>& pieces);

}  // namespace motet
