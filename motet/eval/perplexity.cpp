#include "motet/eval/perplexity.h"

#include <cmath>
#include <numbers>

#include "motet/core/error.h"
#include "motet/core/progress.h"
#include "motet/data/batches.h"
#include "motet/train/trainer.h"

namespace motet {

Perplexity token_perplexity(ModelImpl& model, const TokenSequence& tokens, double bytes_per_token,
                            const PerplexityOptions& options) {
  const int64_t context = options.context > 0 ? options.context : model.config().context;
  if (context > model.config().context)
    fail_usage("eval: a window of ", context, " tokens, want at most the model's context of ", model.config().context);
  const int64_t windows = num_eval_windows(tokens, context);
  Progress progress("perplexity", windows);
  double sum = 0;
  for (int64_t row = 0; row < windows; row += options.rows) {
    const Batch part = eval_windows(tokens, context, row, options.rows, options.documents_apart);
    sum += mean_loss(model, part, options.rows) * static_cast<double>(part.rows);
    progress.update(row + part.rows);
  }
  progress.finish();
  Perplexity p{.nats_per_token = sum / static_cast<double>(windows), .tokens = windows * context, .context = context};
  p.perplexity = std::exp(p.nats_per_token);
  p.bits_per_byte = p.nats_per_token / std::numbers::ln2 / bytes_per_token;
  return p;
}

Perplexity text_perplexity(ModelImpl& model, const Tokenizer& tokenizer, std::string_view text,
                           const PerplexityOptions& options) {
  const MemoryTokens tokens(tokenizer.encode(text));
  return token_perplexity(model, tokens, static_cast<double>(text.size()) / static_cast<double>(tokens.size()),
                          options);
}

}  // namespace motet
