#pragma once
#include "motet/compare/compare.h"
#include "motet/report/table.h"

namespace motet {

/// The table of a comparison: loss of each mechanism, how it stands against the baseline's, size and cost.
Table comparison_table(const Comparison&, const RunConfig&, const TextData&, Match);

/// A few plain sentences: the lowest loss, whether its lead over the baseline is more than noise, and what diverged or
/// did not finish.
std::string comparison_summary(const Comparison&);

/// "parameters", "FLOPs per token", "nothing".
const char* matched_name(Match);
/// Whether the budget is time, so that models take different numbers of steps.
bool by_minutes(const RunConfig&);

}  // namespace motet
