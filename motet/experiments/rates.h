#pragma once
#include "motet/experiments/results.h"

// Which learning rate an arm trains with: decided by results.json alone, so that it is the same wherever it is asked.
namespace motet {

/// By arm, the factor at which all of its seeds train: of its rates the one with the best mean of the sweep's metric
/// over the sweep's seeds, of equal ones the smallest. A rate at which one of those seeds has no such number (it
/// diverged) is behind all others. Arms some of whose cells for that have not ended are not in it; without a sweep it
/// is 1 for all.
std::map<std::string, double> chosen_rates(const Experiment&, const ExperimentScale&, const ExperimentResults&);

/// The cells that are to run as far as it is known: those that choose, and every seed of the arms that have chosen.
std::vector<ExperimentCell> known_cells(const Experiment&, const ExperimentScale&, const ExperimentResults&);

/// The cells that verdicts are about: each arm at the rate that it chose.
std::vector<ExperimentCell> counted_cells(const Experiment&, const ExperimentScale&, const ExperimentResults&);

/// How many cells are to run in the end: which, decides the sweep.
size_t planned_cells(const Experiment&, const ExperimentScale&);

/// What a report says of an arm: "2", or "2 (edge)" of the smallest and the largest of several factors, beside which
/// another one might have been better; "-" of one that has not chosen.
std::string shown_rate(const ExperimentScale&, const ExperimentArm&, const std::map<std::string, double>& chosen);
/// A sentence on how the arms of a scale chose; "" without a sweep.
std::string sweep_text(const ExperimentScale&);

}  // namespace motet
