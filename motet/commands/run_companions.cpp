#include "motet/commands/run_companions.h"

#include "motet/commands/chat_form.h"
#include "motet/core/error.h"
#include "motet/data/prepared.h"
#include "motet/generate/end_tokens.h"
#include "motet/text/readers/load.h"

namespace motet {
namespace {

// A text has no tokenizer of its own; `bytes` and `chars` have nothing beside them.
Companions beside_tokenizer(const RunConfig& run) {
  const std::string first = !run.mixture.empty() ? run.mixture[0].path
                            : run.texts.empty()  ? std::string()
                                                 : run.texts[0];
  if (!first.empty() && is_prepared_data(first)) {
    const PreparedData data = open_prepared_data(first);
    Companions made = data.tokenizer.empty() ? Companions() : companions_of_tokenizer(data.tokenizer);
    if (data.manifest && data.manifest->document_token)
      for (const char* key : {"bos_token_id", "eos_token_id"}) made.token_ids[key] = *data.manifest->document_token;
    if (!data.tokenizer.empty()) return made;
  }
  const std::string name = run.data.tokenizer;
  return name == "auto" || name == "bytes" || name == "chars" ? Companions() : companions_of_tokenizer(name);
}

}  // namespace

Companions run_companions(const RunConfig& run, const Tokenizer* tokenizer, const Checkpoint* init) {
  if (!run.task.is_null()) return {.files = {{kTaskFile, run.task.dump(2) + "\n"}}};
  Companions made = init ? companions_of(*init) : beside_tokenizer(run);
  add_named_token_ids(made, *tokenizer);
  made.files.emplace("tokenizer.json", tokenizer->to_json().dump());
  return made;
}

TextData load_run_data(const RunConfig& run, std::shared_ptr<const Tokenizer> tokenizer, const Checkpoint* init) {
  if (run.texts.size() != 1 || !is_examples(run.texts[0])) return load_text_data(run, std::move(tokenizer));
  if (!tokenizer) {
    if (run.data.tokenizer == "auto" || run.data.tokenizer == "chars")
      fail_usage(run.texts[0],
                 ": examples have no tokenizer of their own, want --init or --tokenizer, which is not made of them");
    tokenizer = choose_tokenizer(run.data.tokenizer, "");
  }
  return load_text_data(run, tokenizer, example_form(run_companions(run, tokenizer.get(), init), *tokenizer));
}

}  // namespace motet
