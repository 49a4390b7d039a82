#pragma once
#include "motet/commands/options.h"
#include "motet/train/text_data.h"

namespace motet {

/// What is scored, read before the model: a text, prepared data, several sources of which one is prepared, or examples,
/// which a model must read.
struct EvalTexts {
  std::vector<OpenedSource> sources;
  std::string examples;   // their file; empty: there are none
  double validation = 0;  // the part that training keeps; 0: all

  bool whole_text() const { return !sources.empty() && !sources[0].prepared && sources.size() == 1 && validation == 0; }
};

/// Throws what open_source throws; UsageError for examples beside other texts, and for documents that are kept apart
/// where there are none.
EvalTexts open_eval_texts(const std::vector<std::string>& paths, const EvalRequest&);

/// Warns where all sources have a validation part of their own, of which --validation changes nothing.
void warn_of_validation(const EvalTexts&);

struct EvalTokens {
  std::string name;
  std::shared_ptr<const TokenSequence> tokens;
};

/// Of each source the validation part, as training has it, or all where it has none and none was asked for; one source
/// behind another. Throws what tokenizer_of throws.
EvalTokens eval_tokens(const EvalTexts&, const std::shared_ptr<const Tokenizer>&);

}  // namespace motet
