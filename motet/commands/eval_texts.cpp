#include "motet/commands/eval_texts.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/log.h"

namespace motet {

EvalTexts open_eval_texts(const std::vector<std::string>& paths, const EvalRequest& asked) {
  EvalTexts texts{.validation = asked.validation};
  bool any_prepared = false, all_prepared = !paths.empty();
  for (const std::string& path : paths) {
    const bool prepared = is_prepared_data(path);
    any_prepared |= prepared, all_prepared &= prepared;
    if (prepared || !is_examples(path)) continue;
    if (paths.size() > 1) fail_usage(path, " has examples and there are other texts, want it alone");
    texts.examples = path;
    return texts;
  }
  if (asked.documents == Documents::apart && !all_prepared)
    fail_usage("--documents: 'apart' needs documents, want prepared data (motet data prepare)");
  if (!any_prepared) texts.sources.push_back(open_source(paths));
  for (const std::string& path : paths)
    if (any_prepared) texts.sources.push_back(open_source({path}));
  return texts;
}

void warn_of_validation(const EvalTexts& texts) {
  const auto has_own = [](const OpenedSource& source) { return source.prepared && source.prepared->validation; };
  if (!texts.sources.empty() && std::ranges::all_of(texts.sources, has_own))
    log_warn(text("--validation: ", texts.sources[0].name,
                  " has a validation part of its own, which is scored whatever is given here"));
}

EvalTokens eval_tokens(const EvalTexts& texts, const std::shared_ptr<const Tokenizer>& tokenizer) {
  EvalTokens all;
  std::vector<std::shared_ptr<const TokenSequence>> parts;
  for (const OpenedSource& source : texts.sources) {
    if (source.prepared) tokenizer_of(*source.prepared, tokenizer);
    const Halves halves = halves_of(source, *tokenizer, texts.validation);
    const bool part = texts.validation > 0 || (source.prepared && source.prepared->validation);
    parts.push_back(part ? halves.validation : halves.train);
    all.name += (all.name.empty() ? "" : " + ") + source.name + (part ? " (validation)" : "");
  }
  all.tokens = parts.size() == 1 ? parts[0] : std::make_shared<JoinedTokens>(parts);
  return all;
}

}  // namespace motet
