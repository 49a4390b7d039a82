#pragma once
#include "motet/data/tokens.h"
#include "motet/models/model.h"
#include "motet/probe/options.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// What a model makes of a text: the negative log-likelihood of each token but the first.
struct Perplexity {
  double nats_per_token = 0, bits_per_byte = 0, perplexity = 0;
  double error = 0;            // standard error of nats_per_token over windows; 0: not known
  double word_perplexity = 0;  // exp of the nats of a word; words are what white space separates; 0: not known
  int64_t tokens = 0;          // scored
  int64_t context = 0;         // tokens of a window
  std::vector<double> by_position = {};  // nats a token of equal parts of a window, NaN where none is scored
};

struct PerplexityOptions {
  int64_t context = 0;           // 0: the model's
  int64_t stride = 0;            // 0: the context
  int64_t rows = 0;              // windows at once; 0: some 8192 tokens
  bool documents_apart = false;  // of prepared data: none sees another
  int64_t positions = 0;         // parts of a window for Perplexity::by_position; 0: none
  LogitRounding rounding = {};   // of attention logits
};

/// Tokens of a window. Throws UsageError when they are more than the model's context, and for a model that is not
/// causal.
int64_t perplexity_context(ModelImpl&, const PerplexityOptions&);

/// A part of a text: inputs are tokens begin .. end, targets those one later, of which the last `scored` count.
struct Window {
  int64_t begin = 0, end = 0, scored = 0;
};

/// Windows in which each of `tokens` but the first is scored exactly once: the first window scores all of its targets,
/// each further one, `stride` tokens on, those that were not scored before; positions begin at 0 in every window. The
/// last is moved back to be as long as the others.
std::vector<Window> score_windows(int64_t tokens, int64_t context, int64_t stride);

/// The nats a token that text_perplexity scores, of tokens without their text.
double nats_of_windows(ModelImpl&, std::span<const int64_t> tokens, const PerplexityOptions&);

/// Throws UsageError when the window is longer than the model's context or the stride longer than the window, Error
/// when the text has fewer than two tokens.
Perplexity text_perplexity(ModelImpl&, const Tokenizer&, std::string_view text, const PerplexityOptions&);

/// The same of tokens without their text, in windows side by side; what the last one leaves is not scored.
/// `token_bytes`: of text, by id (text/token_bytes.h). Throws UsageError also for a stride, Error for fewer tokens than
/// a window.
Perplexity token_perplexity(ModelImpl&, const TokenSequence&, std::span<const int32_t> token_bytes,
                            const PerplexityOptions&);

}  // namespace motet
