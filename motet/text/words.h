// Which tokens begin a word.
#pragma once

#include <vector>

#include "motet/text/tokenizer.h"

namespace motet {

// By id: whether what the token adds to a decoded text that it does not begin starts with white space, as " the" of a
// byte-level BPE and "▁the" of SentencePiece do. Special tokens begin none.
std::vector<bool> word_beginnings(const Tokenizer& tokenizer);

}  // namespace motet
