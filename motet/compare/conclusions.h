#pragma once
#include "motet/compare/comparison.h"

namespace motet {

/// What follows from the runs, for Results::conclusions: "sweep", the losses of every value and which was chosen;
/// "scaling", the laws of the losses over sizes.
nlohmann::json conclusions(const std::vector<Comparison>&, const RunConfig&);

}  // namespace motet
