#include "motet/commands/run_companions.h"

#include "motet/data/prepared.h"
#include "motet/generate/end_tokens.h"

namespace motet {
namespace {

// A text has no tokenizer of its own; `bytes` and `chars` have nothing beside them.
Companions beside_tokenizer(const RunConfig& run) {
  if (!run.texts.empty() && is_prepared_data(run.texts.front())) {
    const PreparedData data = open_prepared_data(run.texts.front());
    Companions made = data.tokenizer.empty() ? Companions() : companions_of_tokenizer(data.tokenizer);
    if (data.manifest && data.manifest->document_token)
      for (const char* key : {"bos_token_id", "eos_token_id"}) made.token_ids[key] = *data.manifest->document_token;
    if (!data.tokenizer.empty()) return made;
  }
  const std::string name = run.data.tokenizer;
  return name == "auto" || name == "bytes" || name == "chars" ? Companions() : companions_of_tokenizer(name);
}

}  // namespace

Companions run_companions(const RunConfig& run, const Tokenizer& tokenizer, const Checkpoint* init) {
  Companions made = init ? companions_of(*init) : beside_tokenizer(run);
  add_named_token_ids(made, tokenizer);
  made.files.emplace("tokenizer.json", tokenizer.to_json().dump());
  return made;
}

}  // namespace motet
