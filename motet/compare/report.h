#pragma once
#include "motet/compare/compare.h"
#include "motet/report/html.h"
#include "motet/report/table.h"

namespace motet {

/// The table of a comparison: size, cost and loss of each mechanism, and how its loss stands against the baseline's.
Table comparison_table(const Comparison&, const RunConfig&, const TextData&, Match);

/// One or two plain sentences: the best mechanism, and whether its lead is more than noise.
std::string comparison_summary(const Comparison&);

struct Presentation {
  std::string command, prompt;
  std::vector<std::string> samples;  // a continuation of the prompt by each arm
  Match match;
};
ReportData comparison_report(Comparison&, const RunConfig&, const TextData&, const Presentation&);

}  // namespace motet
