#include "motet/eval/perplexity/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/eval/token_scores.h"
#include "motet/ops/device.h"
#include "motet/train/score.h"

namespace motet {
namespace {

constexpr int64_t kTokensAtOnce = 8192;

int64_t words_of(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    words += !space && !inside;
    inside = !space;
  }
  return words;
}

// The sum over windows of one length.
double nats_of(ModelImpl& model, const Tensor& tokens, std::span<const Window> windows) {
  std::vector<Tensor> inputs, targets;
  for (const Window& w : windows) {
    inputs.push_back(tokens.slice(0, w.begin, w.end));
    targets.push_back(tokens.slice(0, w.end - w.scored + 1, w.end + 1));
  }
  const Tensor hidden = model.hidden(at::stack(inputs));
  std::vector<Tensor> rows;
  for (size_t i = 0; i < windows.size(); ++i)
    rows.push_back(hidden[static_cast<int64_t>(i)].slice(0, hidden.size(1) - windows[i].scored));
  return -token_scores(model, at::cat(rows), at::cat(targets)).log_likelihood.sum().item<double>();
}

int64_t rows_of(const PerplexityOptions& options, int64_t context) {
  return options.rows > 0 ? options.rows : std::max<int64_t>(1, kTokensAtOnce / context);
}

}  // namespace

int64_t perplexity_context(ModelImpl& model, const PerplexityOptions& options) {
  const int64_t context = options.context > 0 ? options.context : model.config().context;
  if (context > model.config().context)
    fail_usage("eval: a window of ", context, " tokens, want at most the model's context of ", model.config().context);
  return context;
}

std::vector<Window> score_windows(int64_t tokens, int64_t context, int64_t stride) {
  const int64_t length = std::min(context, tokens - 1);
  std::vector<Window> out{{0, length, length}};
  for (int64_t end = length; end < tokens - 1;) {
    const int64_t next = std::min(end + stride, tokens - 1);
    out.push_back({next - length, next, next - end});
    end = next;
  }
  return out;
}

Perplexity text_perplexity(ModelImpl& model, const Tokenizer& tokenizer, std::string_view text,
                           const PerplexityOptions& options) {
  const int64_t context = perplexity_context(model, options);
  const int64_t stride = options.stride > 0 ? options.stride : context;
  if (stride > context) fail_usage("eval: a stride of ", stride, " tokens, want at most the window of ", context);
  at::NoGradGuard no_grad;
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const auto count = static_cast<int64_t>(ids.size());
  if (count < 2) fail("the text has ", count, count == 1 ? " token" : " tokens", ", want at least 2");
  const Tensor tokens = ids_tensor(std::span<const int32_t>(ids), model.device()).squeeze(0);
  const std::vector<Window> windows = score_windows(count, context, stride);
  const size_t rows = static_cast<size_t>(rows_of(options, context));
  Progress progress("perplexity", static_cast<int64_t>(windows.size()));
  double nats = 0;
  for (size_t at = 0; at < windows.size(); at += rows) {
    check_interrupt();
    nats += nats_of(model, tokens, std::span(windows).subspan(at, std::min(rows, windows.size() - at)));
    progress.update(static_cast<int64_t>(std::min(at + rows, windows.size())));
  }
  progress.finish();
  const auto scored = static_cast<double>(count - 1);
  Perplexity p{.nats_per_token = nats / scored, .tokens = count - 1, .context = context};
  p.perplexity = std::exp(p.nats_per_token);
  // The first token is not scored; it counts as much as the others do on average.
  const double all = p.nats_per_token * static_cast<double>(count);
  p.bits_per_byte = all / std::numbers::ln2 / static_cast<double>(text.size());
  p.word_perplexity = std::exp(all / static_cast<double>(std::max<int64_t>(words_of(text), 1)));
  return p;
}

Perplexity token_perplexity(ModelImpl& model, const TokenSequence& tokens, std::span<const int32_t> token_bytes,
                            const PerplexityOptions& options) {
  if (options.stride > 0) fail_usage("--stride: prepared data and examples are scored window by window, want a text");
  const int64_t context = perplexity_context(model, options), windows = num_eval_windows(tokens, context);
  Progress progress("perplexity", windows);
  const WindowScore score =
      score_windows(model, {tokens, token_bytes, context, options.documents_apart}, spread_windows(windows, windows),
                    rows_of(options, context), [&](int64_t done) { progress.update(done); });
  progress.finish();
  return {.nats_per_token = score.loss,
          .bits_per_byte = score.bits_per_byte(),
          .perplexity = std::exp(score.loss),
          .error = score.error,
          .tokens = score.tokens,
          .context = context};
}

}  // namespace motet
