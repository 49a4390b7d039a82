#pragma once
#include "motet/train/text_data.h"

namespace motet {

/// The beginning of the validation text, at most 16 tokens and half the context, as a prompt for a model of it; ""
/// where the tokenizer cannot read what it wrote.
std::string first_words(const TextData&, int64_t context);

}  // namespace motet
