#include "motet/commands/eval_masked.h"

#include <cmath>

#include "motet/checkpoints/checkpoint.h"
#include "motet/commands/eval_texts.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/models/lengthen.h"
#include "motet/ops/device.h"
#include "motet/text/token_bytes.h"
#include "motet/train/objective.h"
#include "motet/train/score.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Scored {
  std::string name;
  std::shared_ptr<const TokenSequence> tokens;  // and one behind them, which is not scored
  bool whole;                                   // a text, of which no token is left out
};

Scored read_texts(const EvalTexts& texts, const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (!texts.examples.empty()) fail_usage(texts.examples, " has examples, want a text for masked");
  if (!texts.whole_text()) {
    EvalTokens part = eval_tokens(texts, tokenizer);
    return {std::move(part.name), std::move(part.tokens), false};
  }
  const Corpus& corpus = texts.sources[0].corpus;
  std::vector<int32_t> ids = tokenizer->encode(corpus.text);
  if (ids.empty()) fail("eval: ", corpus.name, " has no tokens, want at least 1");
  ids.push_back(0);
  return {corpus.name, std::make_shared<MemoryTokens>(std::move(ids)), true};
}

// The windows side by side; of a text, a shorter one behind them has the tokens that are left.
WindowScore score_all(ModelImpl& model, const Scored& scored, const ScoredTokens& what, int64_t rows) {
  const auto all = static_cast<int64_t>(scored.tokens->size()) - 1;
  const int64_t windows = scored.whole ? all / what.context : num_eval_windows(what.tokens, what.context),
                left = scored.whole ? all % what.context : 0;
  Progress progress("masked", windows + (left > 0));
  WindowLosses losses = window_losses(model, what, spread_windows(windows, windows), {rows},
                                      [&](int64_t done) { progress.update(done); });
  if (left > 0) {
    const TokenPart rest(scored.tokens, static_cast<uint64_t>(all - left), static_cast<uint64_t>(left) + 1);
    losses.append(window_losses(model, {rest, {}, left, false, what.masks}, spread_windows(1, 1), {1}));
  }
  progress.finish();
  return losses.score();
}

Table masked_table(const std::string& name, int64_t window, const WindowScore& score) {
  const double accuracy = score.accuracy();
  return {.columns = {{"text", Align::left},
                      {"hidden", Align::right, "tokens", "tokens"},
                      {"window"},
                      {"loss", Align::right, "nats/token", "nats_per_token"},
                      {"+-", Align::right, "", "standard_error"},
                      {"accuracy"}},
          .rows = {{name,
                    {std::to_string(score.tokens), score.tokens},
                    {std::to_string(window), window},
                    {fixed(score.loss, 4), score.loss},
                    {fixed(score.error, 4), score.error},
                    {fixed(accuracy, 4), accuracy}}}};
}

}  // namespace

int run_eval_masked(const json& request, const std::vector<std::string>& texts) {
  refuse_flags(request, kMasked, {"stride", "positions", "logit_bits", "logit_scale", "limit", "items", "set"});
  const EvalRequest asked = read_request(eval_options(), request);
  const Option size{.name = "ctx_size", .type = OptionType::integer, .default_value = 1, .min = 1, .max = 1e9};
  const int64_t given = asked.ctx_size.empty() ? 0 : checked(size, asked.ctx_size, "--ctx-size").get<int64_t>();
  const fs::path folder = model_folder(request, "model");
  output_format(request);  // a wrong name is refused before the work
  request_threads(request);
  Checkpoint checkpoint = open_checkpoint(folder);
  if (checkpoint.config.causal())
    fail_usage("eval: masked of a causal model, which hides what follows, want motet eval perplexity");
  checkpoint.config = lengthened(checkpoint.config, given > checkpoint.config.context ? given : 0, json::object());
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder, checkpoint.config);
  const EvalTexts opened = open_eval_texts(texts, asked);
  if (request.contains("validation")) warn_of_validation(opened);
  const Scored scored = read_texts(opened, tokenizer);
  Model model = load_for_scoring(checkpoint, asked, parse_device(asked.device));
  const auto all = static_cast<int64_t>(scored.tokens->size()) - 1;
  const int64_t window = given > 0 ? given : std::clamp<int64_t>(all, 1, checkpoint.config.context);
  const int64_t rows = asked.batch_size > 0 ? asked.batch_size : windows_at_once(window);
  const ScoredTokens what{*scored.tokens,
                          {},
                          window,
                          asked.documents == Documents::apart,
                          scored_masks(checkpoint.config, tokenizer.get())};
  const WindowScore score = score_all(*model, scored, what, rows);
  if (!std::isfinite(score.loss))
    fail("eval: ", scored.name, " has ", score.loss, " nats a token, want a finite number");
  if (!fs::exists(request.value("model", ""))) log_info("model: " + folder.string());  // a run's :best or :average
  print_table(masked_table(scored.name, window, score), request);
  return 0;
}

}  // namespace motet
