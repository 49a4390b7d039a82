#pragma once
#include "motet/compare/comparison.h"
#include "motet/report/html.h"

namespace motet {

struct Presentation {
  std::string command, prompt;
  std::vector<std::string> samples;  // a continuation of the prompt by each arm of the pictured size
  Match match;
};
/// The one whose curves, pictures and texts are shown: the largest of which a run has finished.
size_t pictured_size(const std::vector<Comparison>&);

/// What the HTML report shows: the table, the laws over sizes, and of the pictured size curves, costs, pictures, texts.
ReportData comparison_report(const std::vector<Comparison>&, const RunConfig&, const TextData&, const Presentation&);

/// Gives the report the texts of the first tokens of the validation text, for pictures of their weights; returns them.
std::vector<int64_t> add_sample_tokens(ReportData&, const TextData&, int64_t context);

}  // namespace motet
