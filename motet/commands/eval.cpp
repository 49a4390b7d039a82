#include "motet/eval/perplexity.h"

#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/data/corpus.h"

namespace motet {
namespace {

const OptionTable& eval_options() {
  using enum OptionType;
  static const OptionTable table{
      {"task", string, "perplexity", {}, {}, {"perplexity"}, "what to measure"},
      {"batch_size", integer, 16, 1, 1e6, {}, "windows at once"},
      {"ctx_size", integer, 0, 0, 1e9, {}, "tokens in a window; 0: the model's context"},
  };
  return table;
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
  const auto tokenizer = load_tokenizer(folder, model->config());
  const Corpus corpus = load_corpus(request.value("texts", std::vector<std::string>()));
  const Perplexity p = text_perplexity(*model, *tokenizer, corpus.text,
                                       {values["ctx_size"].get<int64_t>(), values["batch_size"].get<int64_t>()});
  print_table({.columns = {{"text", Align::left},
                           {"tokens"},
                           {"window"},
                           {"nats/token", Align::right, "", "nats_per_token"},
                           {"bits/byte", Align::right, "", "bits_per_byte"},
                           {"perplexity"}},
               .rows = {{corpus.name,
                         {std::to_string(p.tokens), p.tokens},
                         {std::to_string(p.context), p.context},
                         {fixed(p.nats_per_token, 4), p.nats_per_token},
                         {fixed(p.bits_per_byte, 4), p.bits_per_byte},
                         {fixed(p.perplexity, 3), p.perplexity}}}},
              request);
  return 0;
}

}  // namespace motet
