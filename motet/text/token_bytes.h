// How many bytes of text each token stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "motet/text/tokenizer.h"

namespace motet {

// By id: what a token adds to a decoded text that it does not begin; 0 for special tokens.
std::vector<int32_t> token_byte_counts(const Tokenizer& tokenizer);

}  // namespace motet
