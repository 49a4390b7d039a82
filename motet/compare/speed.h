#pragma once
#include "motet/compare/comparison.h"

namespace motet {

/// Measures memory and speed of a training step of each arm, alone: the median of interleaved steps, so that noise of
/// the machine meets all models alike. An arm that diverges is left out here: its runs will say why.
void measure_speed(const RunConfig&, const TextData&, Comparison&);

}  // namespace motet
