#pragma once
#include <filesystem>

#include "motet/eval/multiple_choice/results.h"

namespace motet {

struct ChoiceOptions {
  int64_t limit = 0;                  // items of each file; 0: all
  int64_t batch_size = 16;            // items at once
  int64_t context = 0;                // tokens of context and ending; 0: the model's
  std::optional<int64_t> first = {};  // the token before an empty context
  std::filesystem::path items = {};   // results item by item, and where an interrupted run goes on; empty: none
};

/// Results of each file, of all together behind them when there are several. A folder stands for the *.jsonl in it.
/// Throws UsageError for a model that is not causal or a context beyond the model's; Error in one line for a file that
/// read_questions refuses, an ending that is too long, a log-likelihood that is no number, an `items` of another
/// evaluation; Interrupted on Ctrl-C.
std::vector<ChoiceResult> evaluate_choices(ModelImpl&, const Tokenizer&, const ChoiceTask&,
                                           const std::vector<std::string>& files, const ChoiceOptions&);

}  // namespace motet
