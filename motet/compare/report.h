#pragma once
#include "motet/compare/compare.h"
#include "motet/report/html.h"

namespace motet {

struct Presentation {
  std::string command, prompt;
  std::vector<std::string> samples;  // a continuation of the prompt by each arm
  Match match;
};
/// What the HTML report of a comparison shows: its table, curves, costs, pictures and texts.
ReportData comparison_report(Comparison&, const RunConfig&, const TextData&, const Presentation&);

}  // namespace motet
