// The tokens that transformers keeps in files of their own, beside tokenizer.model or vocab.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "motet/text/readers/vectors.h"

namespace motet {

struct AddedFiles {
  nlohmann::json tokens = nlohmann::json::array();   // as tokenizer.json's added_tokens
  nlohmann::json config = nlohmann::json::object();  // tokenizer_config.json
  std::string where, config_where;                   // the file that has the tokens, tokenizer_config.json
};

// added_tokens_decoder of tokenizer_config.json, or else added_tokens.json, where a token is special that
// tokenizer_config.json or special_tokens_map.json give a role. Throws Error that names the file.
AddedFiles read_added_files(const std::filesystem::path& folder);

// The class of tokenizer in transformers that reads the same files.
struct TokenizerClass {
  const char* pre = "";  // as TokenizerVectors has it
  nlohmann::json normalizer = nullptr;
  const char *bos = "<s>", *eos = "</s>";  // where tokenizer_config.json does not name them; empty: none
};

// Of vocab.json and merges.txt, by tokenizer_class in tokenizer_config.json. Throws Error for one that is not read and
// for add_prefix_space.
TokenizerClass class_of_merges(const AddedFiles& added);

// Sets bos and eos where tokenizer_config.json says add_bos_token and add_eos_token. Throws Error for a name that is no
// piece.
void set_tokens_around(TokenizerVectors& vectors, const AddedFiles& added, const TokenizerClass& of = {});

// A tokenizer with more added tokens. Throws Error when an id belongs to another piece or leaves a gap.
std::unique_ptr<Tokenizer> with_added(const Tokenizer& tokenizer, const AddedFiles& added);

// A SentencePiece model with added tokens, as the LlamaTokenizer of transformers has it: all of them and the control
// tokens are cut out first, and the space goes before what begins the text.
std::unique_ptr<Tokenizer> sentence_piece_with_added(TokenizerVectors vectors, const std::string& where,
                                                     const AddedFiles& added);

}  // namespace motet
