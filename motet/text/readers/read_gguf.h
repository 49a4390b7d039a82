#pragma once
#include <memory>

#include "motet/formats/gguf.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// The tokenizer that a GGUF file carries. Throws Error naming the file and what is missing or not supported.
std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile&);

}  // namespace motet
