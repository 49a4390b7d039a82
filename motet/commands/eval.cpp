#include "motet/eval/perplexity.h"

#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/data/bounded_tokens.h"
#include "motet/data/corpus.h"
#include "motet/train/text_data.h"

namespace motet {
namespace {

const OptionTable& eval_options() {
  using enum OptionType;
  static const OptionTable table{
      {"task", string, "perplexity", {}, {}, {"perplexity"}, "what to measure"},
      {"batch_size", integer, 16, 1, 1e6, {}, "windows at once"},
      {"ctx_size", integer, 0, 0, 1e9, {}, "tokens in a window; 0: the model's context"},
      {"documents", string, "packed", {}, {}, {"packed", "apart"}, "of prepared data: apart: none sees another"},
  };
  return table;
}

// The name of what was scored, and the score: of texts, or of the validation part of prepared data (all of it when
// there is none).
std::pair<std::string, Perplexity> score(ModelImpl& model, const std::shared_ptr<const Tokenizer>& tokenizer,
                                         const std::vector<std::string>& texts, const PerplexityOptions& options) {
  if (texts.size() == 1 && is_prepared_data(texts[0])) {
    const PreparedData data = open_prepared_data(texts[0]);
    tokenizer_of(data, tokenizer);
    const BoundedTokens tokens(data.validation ? data.validation : data.train, tokenizer->vocabulary_size(), data.name);
    const SplitRecord* split = nullptr;
    if (data.manifest) split = data.validation ? &data.manifest->validation : &data.manifest->train;
    return {data.name + (data.validation ? " (validation)" : ""),
            token_perplexity(model, tokens, text_bytes_per_token(data, split, tokens, *tokenizer), options)};
  }
  if (options.documents_apart)
    fail_usage("--documents: 'apart' needs documents, want prepared data (motet data prepare)");
  const Corpus corpus = load_corpus(texts);
  return {corpus.name, text_perplexity(model, *tokenizer, corpus.text, options)};
}

}  // namespace

int run_eval(const nlohmann::json& request) {
  const nlohmann::json values = request_values(eval_options(), request);
  if (request.value("list", false)) {
    print_table({.columns = {{"task", Align::left}, {"measures", Align::left}},
                 .rows = {{"perplexity", "nats per token, bits per byte and perplexity of a text"}}},
                request);
    return 0;
  }
  const std::filesystem::path folder = model_folder(request, "model");
  request_threads(request);
  Model model = load_model_folder(folder);
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder, model->config());
  const auto [name, p] =
      score(*model, tokenizer, request.value("texts", std::vector<std::string>()),
            {values["ctx_size"].get<int64_t>(), values["batch_size"].get<int64_t>(), values["documents"] == "apart"});
  print_table({.columns = {{"text", Align::left},
                           {"tokens"},
                           {"window"},
                           {"nats/token", Align::right, "", "nats_per_token"},
                           {"bits/byte", Align::right, "", "bits_per_byte"},
                           {"perplexity"}},
               .rows = {{name,
                         {std::to_string(p.tokens), p.tokens},
                         {std::to_string(p.context), p.context},
                         {fixed(p.nats_per_token, 4), p.nats_per_token},
                         {fixed(p.bits_per_byte, 4), p.bits_per_byte},
                         {fixed(p.perplexity, 3), p.perplexity}}}},
              request);
  return 0;
}

}  // namespace motet
