#pragma once
#include "motet/data/tokens.h"
#include "motet/models/model.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// What a model makes of a text: mean negative log-likelihood over consecutive windows of the context.
struct Perplexity {
  double nats_per_token = 0, bits_per_byte = 0, perplexity = 0;
  int64_t tokens = 0;   // scored
  int64_t context = 0;  // tokens of a window
};

struct PerplexityOptions {
  int64_t context = 0;  // 0: the model's
  int64_t rows = 16;    // windows at once
  bool documents_apart = false;
};

/// Throws UsageError when the window is longer than the model's context, Error when there are fewer tokens than a
/// window. `bytes_per_token`: of text.
Perplexity token_perplexity(ModelImpl&, const TokenSequence&, double bytes_per_token, const PerplexityOptions&);

/// token_perplexity of a text.
Perplexity text_perplexity(ModelImpl&, const Tokenizer&, std::string_view text, const PerplexityOptions&);

}  // namespace motet
