// The text that each token stands for, and how many bytes it has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "motet/text/tokenizer.h"

namespace motet {

// By id: what a token adds to a decoded text that it does not begin; 0 for special tokens.
std::vector<int32_t> token_byte_counts(const Tokenizer& tokenizer);

// The bytes that a token adds to a text that it does not begin: " a" of SentencePiece's "▁a", which is "a" alone; one
// byte of its "<0xE2>". Throws Error for an id outside of the vocabulary.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);

// Likewise of tokens one behind another, as a person reads them: a character that several of them make is part of the
// last one. Bytes that make no character stay as they are.
std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace motet
