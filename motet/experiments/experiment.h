#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "motet/experiments/verdict.h"

// experiments/<ID>_<name>/experiment.toml: what is claimed, what is run to find out, and what decides. Torch-free.
namespace motet {

/// A contender. Its options are laid over those of the experiment and of the scale.
struct ExperimentArm {
  std::string name;
  nlohmann::json options;
  std::vector<double> rates;  // in place of its scale's, where that sweeps rates; empty: those
};

/// How the arms of a scale come to their learning rates: the first seeds of each train at every factor of theirs, all
/// seeds at the best (rates.h).
struct RateSweep {
  std::vector<double> factors;             // of train.learning_rate, rising; empty: no sweep, every cell is of 1
  size_t seeds = 2;                        // that train at every factor
  std::string metric = "validation_loss";  // the best mean of which over those seeds chooses
  bool highest = false;                    // is the best; else the lowest
};

/// How large: "xs" within hours of two cores, "s" a night, "m" on a GPU.
struct ExperimentScale {
  std::string name;
  size_t seeds = 6;
  nlohmann::json options;
  RateSweep sweep;

  /// Factors of the learning rate at which an arm trains: one, or those of a sweep.
  const std::vector<double>& rates_of(const ExperimentArm&) const;
};

struct Experiment {
  std::string id, title;  // of the folder's name: "S2", "key size"
  std::filesystem::path folder;
  std::string claim, source, published;  // in a sentence; where it stands; the figure that was published
  std::vector<std::string> deviations;   // from how it was published
  std::string not_run;                   // why it is not run here; "": it is
  std::string kind;                      // who runs its cells
  nlohmann::json options;                // of that kind
  std::vector<ExperimentArm> arms;       // the first one is what the others are matched with
  std::vector<ExperimentScale> scales;   // the largest one last
  std::vector<Claim> claims;
  std::vector<Control> controls;

  /// Throws UsageError with the nearest name.
  const ExperimentScale& scale(const std::string& name) const;
};

/// Throws Error in one line that begins with the file: wrong TOML, unknown keys (nearest named), arms and claims that
/// do not fit together, claims without a control.
Experiment read_experiment(const std::filesystem::path& folder);

/// Those of all folders in `root` with an experiment.toml, by id: letters first, numbers as numbers. Throws Error for a
/// root that is not there, and for two of one id.
std::vector<Experiment> read_experiments(const std::filesystem::path& root);

/// Throws UsageError with the nearest id.
const Experiment& find_experiment(const std::vector<Experiment>&, const std::string& id);

/// The least that is run and finishes: one arm at one scale and rate with one seed. Of cells that have the same
/// options, rate, seed and baseline the results are the same, and so is the hash; that of a rate of 1 is the one that
/// the cell has without a sweep.
struct ExperimentCell {
  std::string scale, arm;
  int64_t seed = 1;         // from 1
  double rate = 1;          // factor of the learning rate
  nlohmann::json options;   // of the experiment, under those of the scale, under those of the arm
  nlohmann::json baseline;  // those of the first arm
  std::string hash;         // 16 digits
};
/// All that may be run, of a sweep every seed at every rate. Seed after seed, so that what is there early is complete.
std::vector<ExperimentCell> cells_of(const Experiment&, const ExperimentScale&);

}  // namespace motet
