// The two kinds of tokenizer_from_vectors, and what they share with other files.
#pragma once

#include <nlohmann/json.hpp>

#include "motet/text/bpe/bpe.h"
#include "motet/text/readers/vectors.h"

namespace motet {

std::unique_ptr<Tokenizer> gpt2_from_vectors(const TokenizerVectors& vectors, const std::string& where);
std::unique_ptr<Tokenizer> llama_from_vectors(const TokenizerVectors& vectors, const std::string& where);

// Whether llama.cpp puts the begin token before a text of this pre-tokenizer when add_bos_token is absent.
bool adds_bos(const std::string& pre, const std::string& where);

// "post_processor" of a tokenizer.json: the tokens around a text; null for none. Throws Error for ids that are no
// tokens.
nlohmann::json post_processor_of(const TokenizerVectors& vectors, const std::string& where);

// A piece that merging may make: every pair of symbols that it consists of merges with its rank.
struct RankedPiece {
  std::string text;
  int32_t symbol;
  uint32_t rank;
};

// Fills model.merges from model.vocabulary. `unit` gives the size of the smallest symbol at a place. Throws Error when
// the pieces are so long that it would take minutes.
void merges_from_ranks(BpeModel& model, const std::vector<RankedPiece>& pieces,
                       size_t (*unit)(std::string_view text, size_t at), const std::string& where);

}  // namespace motet
