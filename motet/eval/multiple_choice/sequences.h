#pragma once
#include <cstdint>
#include <optional>

#include "motet/eval/multiple_choice/task.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// Tokens of a context and one of its endings; the last `scored` are the ending's.
struct ScoredSequence {
  std::vector<int64_t> tokens;
  int64_t scored = 0;

  int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }  // the last token predicts nothing
};

/// A question as tokens.
struct ScoredItem {
  size_t file = 0, item = 0, gold = 0;
  std::vector<ScoredSequence> choices;
  std::vector<int64_t> bytes;  // of each ending
  bool cut = false;            // longer than the model's context, so its beginning is left out
};

/// As lm-evaluation-harness does it: a blank stands between context and ending, blanks at the end of the context move
/// to the ending, and the ending's tokens are those behind the context's own of the whole. An empty context is the
/// token `first`; without one the ending's own first token is not scored. `context`: the model's, in tokens. Throws
/// Error that begins with `where` for an ending that is longer than that or has nothing to score.
ScoredItem scored_item(const Question&, const Tokenizer&, std::optional<int64_t> first, int64_t context,
                       const std::string& where);

/// How many inputs all choices have in common and none of them scores; 0 for a single choice.
int64_t shared_inputs(const ScoredItem&);

}  // namespace motet
