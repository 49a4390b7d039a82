#include "motet/eval/perplexity/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/eval/token_scores.h"
#include "motet/ops/device.h"
#include "motet/probe/rounding.h"
#include "motet/train/score.h"

namespace motet {
namespace {

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

// The nats of scored tokens by the part of the window in which they stand.
class ByPosition {
 public:
  explicit ByPosition(int64_t parts) : nats_(static_cast<size_t>(parts)), counts_(static_cast<size_t>(parts)) {}

  // Of the tokens [K] that windows of one length score, one window behind another.
  void add(const Tensor& log_likelihood_K, std::span<const Window> windows) {
    if (nats_.empty()) return;
    const Tensor here = log_likelihood_K.to(at::kCPU, at::kDouble).contiguous();
    const double* next = here.const_data_ptr<double>();
    for (const Window& w : windows) {
      const int64_t length = w.end - w.begin;
      for (int64_t at = length - w.scored; at < length; ++at) {
        const auto part = static_cast<size_t>(at * static_cast<int64_t>(nats_.size()) / length);
        nats_[part] -= *next++, ++counts_[part];
      }
    }
  }
  std::vector<double> means() const {
    std::vector<double> all;
    for (size_t i = 0; i < nats_.size(); ++i)
      all.push_back(counts_[i] > 0 ? nats_[i] / static_cast<double>(counts_[i]) : NAN);
    return all;
  }

 private:
  std::vector<double> nats_;
  std::vector<int64_t> counts_;
};

// The sum over windows of one length.
double nats_of(ModelImpl& model, const Tensor& tokens, std::span<const Window> windows, const LogitRounding& rounding,
               ByPosition& by_position) {
  std::vector<Tensor> inputs, targets;
  for (const Window& w : windows) {
    inputs.push_back(tokens.slice(0, w.begin, w.end));
    targets.push_back(tokens.slice(0, w.end - w.scored + 1, w.end + 1));
  }
  const Tensor ids = at::stack(inputs);
  const Positions at = ModelImpl::positions(ids);
  const Tensor hidden = rounding.bits == 0
                            ? model.hidden(ids)
                            : model.normed(model.walk(model.embedded(ids, at), rounded_attention(at, rounding)));
  std::vector<Tensor> rows;
  for (size_t i = 0; i < windows.size(); ++i)
    rows.push_back(hidden[static_cast<int64_t>(i)].slice(0, hidden.size(1) - windows[i].scored));
  const Tensor scores = token_scores(model, at::cat(rows), at::cat(targets)).log_likelihood;
  by_position.add(scores, windows);
  return -scores.sum().item<double>();
}

int64_t rows_of(const PerplexityOptions& options, int64_t context) {
  return options.rows > 0 ? options.rows : windows_at_once(context);
}

// Those of a text of so many tokens.
std::vector<Window> windows_of(ModelImpl& model, int64_t count, const PerplexityOptions& options) {
  const int64_t context = perplexity_context(model, options), stride = options.stride > 0 ? options.stride : context;
  if (stride > context) fail_usage("eval: a stride of ", stride, " tokens, want at most the window of ", context);
  if (count < 2) fail("the text has ", count, count == 1 ? " token" : " tokens", ", want at least 2");
  return score_windows(count, context, stride);
}

// The nats of all tokens [N] but the first. `progress` is told how many windows are done.
double sum_of(ModelImpl& model, const Tensor& tokens, const std::vector<Window>& windows,
              const PerplexityOptions& options, ByPosition& by_position, const std::function<void(size_t)>& progress) {
  at::NoGradGuard no_grad;
  const auto rows = static_cast<size_t>(rows_of(options, perplexity_context(model, options)));
  double nats = 0;
  for (size_t at = 0; at < windows.size(); at += rows) {
    check_interrupt();
    const auto some = std::span(windows).subspan(at, std::min(rows, windows.size() - at));
    nats += nats_of(model, tokens, some, options.rounding, by_position);
    progress(at + some.size());
  }
  return nats;
}

}  // namespace

int64_t perplexity_context(ModelImpl& model, const PerplexityOptions& options) {
  if (!model.config().causal())
    fail_usage("eval: perplexity of a model that is not causal, whose tokens see themselves, want motet eval masked");
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

double nats_of_windows(ModelImpl& model, std::span<const int64_t> tokens, const PerplexityOptions& options) {
  const Tensor all = at::tensor(at::ArrayRef<int64_t>(tokens.data(), tokens.size())).to(model.device());
  ByPosition none(0);
  const double nats = sum_of(model, all, windows_of(model, all.size(0), options), options, none, [](size_t) {});
  return nats / static_cast<double>(tokens.size() - 1);
}

Perplexity text_perplexity(ModelImpl& model, const Tokenizer& tokenizer, std::string_view text,
                           const PerplexityOptions& options) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const auto count = static_cast<int64_t>(ids.size());
  const std::vector<Window> windows = windows_of(model, count, options);
  const Tensor tokens = ids_tensor(std::span<const int32_t>(ids), model.device()).squeeze(0);
  Progress progress("perplexity", static_cast<int64_t>(windows.size()));
  ByPosition by_position(options.positions);
  const double nats = sum_of(model, tokens, windows, options, by_position,
                             [&](size_t done) { progress.update(static_cast<int64_t>(done)); });
  progress.finish();
  const auto scored = static_cast<double>(count - 1);
  Perplexity p{.nats_per_token = nats / scored, .tokens = count - 1, .context = perplexity_context(model, options)};
  p.perplexity = std::exp(p.nats_per_token);
  p.by_position = by_position.means();
  // The first token is not scored; it counts as much as the others do on average.
  const double all = p.nats_per_token * static_cast<double>(count);
  p.bits_per_byte = all / std::numbers::ln2 / static_cast<double>(text.size());
  p.word_perplexity = std::exp(all / static_cast<double>(std::max<int64_t>(words_of(text), 1)));
  return p;
}

Perplexity token_perplexity(ModelImpl& model, const TokenSequence& tokens, std::span<const int32_t> token_bytes,
                            const PerplexityOptions& options) {
  if (options.stride > 0)
    fail_usage(
        "--stride: a validation part, prepared data and examples are scored window by window, want a whole text");
  if (options.positions > 0)
    fail_usage("--positions: of a whole text, not of a validation part, prepared data and examples");
  if (options.rounding.bits > 0)
    fail_usage("--logit-bits: of a whole text, not of a validation part, prepared data and examples");
  const int64_t context = perplexity_context(model, options), windows = num_eval_windows(tokens, context);
  Progress progress("perplexity", windows);
  const WindowScore score =
      score_windows(model, {tokens, token_bytes, context, options.documents_apart}, spread_windows(windows, windows),
                    {rows_of(options, context)}, [&](int64_t done) { progress.update(done); });
  progress.finish();
  return {.nats_per_token = score.loss,
          .bits_per_byte = score.bits_per_byte(),
          .perplexity = std::exp(score.loss),
          .error = score.error,
          .tokens = score.tokens,
          .context = context};
}

}  // namespace motet
