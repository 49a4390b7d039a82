#pragma once
#include "motet/compare/comparison.h"
#include "motet/report/table.h"

namespace motet {

/// The table of comparisons, one or one for each size: loss of each mechanism, how it stands against the baseline's of
/// its size, size and cost.
Table comparison_table(const std::vector<Comparison>&, const RunConfig&, const TextData&, Match);

/// Puts the names of the sizes behind the first column of a table with a row for each arm, when there are sizes.
void add_size_column(Table&, const std::vector<Comparison>&);

/// "parameters", "FLOPs per token", "nothing".
const char* matched_name(Match);

}  // namespace motet
