#pragma once
#include "motet/experiments/experiment.h"

// results.json of an experiment: what its cells came to. It is committed, and decides which cells still have to run.
namespace motet {

/// What one cell came to. Metrics by name, those of a slice as in "accuracy{n=512}".
struct CellResult {
  std::string scale, arm;
  int64_t seed = 1;
  double rate = 1;  // factor of the learning rate
  std::map<std::string, double> metrics;
  std::vector<std::pair<double, double>> curve;  // validation loss over tokens, at most 50 points
  double seconds = 0;
  int64_t tokens = 0, parameters = 0;
  double flops = 0;     // of the whole training
  std::string failure;  // "" when it ended; a run that diverged has no metrics beside those of a watched training
  std::string machine;  // processor and threads, or device
};

/// What an arm resolved to at a scale when its cells ran: every option with its default, hashes of the data.
using Configurations = std::map<std::pair<std::string, std::string>, nlohmann::json>;  // by scale and arm

struct ExperimentResults {
  std::map<std::string, CellResult> cells;  // by hash
  Configurations configurations;
};

/// Empty where there is no results.json yet. Throws Error for one that is damaged or of another version.
ExperimentResults read_results(const Experiment&);

/// Writes results.json with these cells beside those that are there, which stay as they are, and with the verdicts
/// that follow from all of them. `configurations` replace those of the same arms.
void add_results(const Experiment&, const ExperimentResults& more);

/// results.json as its cells and the rules have it: what the file should hold.
std::string results_json(const Experiment&);

/// Without the cells that the experiment no longer has.
void drop_void(const Experiment&);

/// The cells of a scale that have no result, of those that are known (rates.h).
std::vector<ExperimentCell> open_cells(const Experiment&, const ExperimentScale&, const ExperimentResults&);

/// Names of the arms, with how many cells each, whose results belong to no cell any more: experiment.toml has changed.
std::map<std::string, size_t> void_cells(const Experiment&, const ExperimentResults&);

/// The first key at which a configuration as it would resolve now differs from the stored one, "train.warmup was 0.05
/// and is 0.1"; "" when none does. What has come since does not count.
std::string changed_key(const nlohmann::json& stored, const nlohmann::json& now, const std::string& path = "");

/// The verdicts at a scale, one a claim; empty while nothing has run there.
std::vector<Verdict> verdicts(const Experiment&, const ExperimentScale&, const ExperimentResults&);

/// The largest scale whose cells have all ended; null without.
const ExperimentScale* shown_scale(const Experiment&, const ExperimentResults&);

/// The numbers of a metric by arm and seed, of each arm at the rate that it chose; NaN where a cell has none.
ArmNumbers numbers_of(const Experiment&, const ExperimentScale&, const ExperimentResults&, const std::string& metric);

}  // namespace motet
