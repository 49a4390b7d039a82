// Tokenizers from plain lists, as GGUF and SentencePiece files hold them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motet/text/tokenizer.h"

namespace motet {

struct TokenizerVectors {
  enum Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  std::string kind;                 // "gpt2": bytes and merges; "llama": SentencePiece's scores
  std::string pre;                  // gpt2: how the text is cut, by GGUF's name ("gpt-2", "llama-bpe", "smollm" ...)
  std::vector<std::string> tokens;  // by id
  std::vector<std::string> merges;  // gpt2: "a b", the first merges first
  std::vector<float> scores;        // llama: of each token
  std::vector<int32_t> types;       // of each token; empty: all normal
  int32_t bos = -1, eos = -1;       // added around a text on request; -1: none
  bool add_space_prefix = true;     // llama
  bool collapse_spaces = false;     // llama: remove_extra_whitespaces
  std::string unknown_text = " \xE2\x81\x87 ";  // llama: of an unknown token (unk_surface)
  bool parse_control = true;  // control tokens that are written out are found (SentencePiece itself does not)
};

// Throws Error in one line that begins with `where`: lists of other lengths, a kind or pre-tokenizer that is not
// supported, merges of unknown pieces, scores that are no numbers, tokens twice.
std::unique_ptr<Tokenizer> tokenizer_from_vectors(const TokenizerVectors& vectors, const std::string& where);

// A SentencePiece .model of type BPE without a precompiled character map.
TokenizerVectors read_sentence_piece(std::string_view bytes, const std::string& where);

// llama2.c's tokenizer.bin: token length, then score, length and bytes of each token.
TokenizerVectors read_llama2c(std::string_view bytes, const std::string& where);

}  // namespace motet
