#pragma once
#include "motet/checkpoints/checkpoint.h"
#include "motet/compare/comparison.h"

namespace motet {

/// Trains what has not ended of all comparisons, `jobs` runs at once; run_comparisons says how. Results::ended grows
/// with each. True: interrupted.
bool train_all(std::vector<Comparison>&, const RunConfig&, const TextData&, const CompareOptions&, Results&);

/// Where and in which dtype a saved model of a run is made again.
Placement placement(const TrainOptions&);

}  // namespace motet
