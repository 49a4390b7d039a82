#pragma once
#include "motet/compare/comparison.h"

namespace motet {

/// Measures the speed of each planned model alone, then trains all of them: run i of every arm begins with the same
/// numbers, where shapes agree, and reads the same batches in the same order. With a sweep the first seed trains every
/// value, and the other seeds the best one. Writes metrics.jsonl as it goes and a model folder and a line of
/// results.json for every run that ended. A run that diverges ends its arm and no other; one of a sweep is not chosen.
/// Ctrl-C ends the comparison with what had finished (`interrupted`), or throws Interrupted when nothing had. Throws
/// any other error of a run. `before`: what had ended of a comparison that goes on; runs that had begun go on where
/// their checkpoint in running/ stands. Throws UsageError when an arm is of another size than it was.
void run_comparisons(std::vector<Comparison>& planned, const RunConfig&, const TextData&, const CompareOptions&,
                     Results before = {});

/// What must be the same of a comparison that goes on, for Results::comparison.
nlohmann::json comparison_record(const RunConfig&, const TextData&, const CompareOptions&);

}  // namespace motet
