#pragma once
#include "motet/compare/comparison.h"

namespace motet {

/// A few plain sentences: the lowest loss, whether its lead over the baseline is more than noise, what a sweep chose,
/// and what diverged or did not finish.
std::string comparison_summary(const Comparison&);

/// That of each size, a line each, and what their laws come to.
std::string summary_of(const std::vector<Comparison>&, const RunConfig&);
/// What diverged at which size; "" when nothing did.
std::string all_failures(const std::vector<Comparison>&);

}  // namespace motet
