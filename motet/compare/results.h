#pragma once
#include <cmath>
#include <compare>
#include <filesystem>
#include <map>

#include "motet/train/trainer.h"

// results.json of a comparison: which runs have ended and how. It grows after each, so that a comparison that was
// stopped goes on, and one that ended can be given more seeds, contenders and sizes.
namespace motet {

/// Which run: a contender, at a size of --sizes, with a setting of --sweep (each "" without), and its seed. All that
/// is kept of a run is found by this name.
struct RunName {
  std::string label, size, setting;
  int64_t seed = 0;

  auto operator<=>(const RunName&) const = default;
  /// Its keys in results.json and metrics.jsonl; what is "" is left out.
  nlohmann::json record() const;
  static RunName of(const nlohmann::json& record);
  /// Of its folders in models/ and running/: "dcmha-rank-1-64x2-train.learning_rate-0.001-seed2".
  std::string folder() const;
  /// "dcmha, train.learning_rate=0.001, seed 2".
  std::string shown() const;
};

/// What was measured of a contender at a size before its runs.
struct Measured {
  int64_t intermediate_size = 0;
  double tokens_per_second = 0;
  int64_t peak_bytes = 0;
  int64_t threads = 0;  // of each run; 0: earlier versions did not say
};

/// A run that ended: it trained to its end, or diverged.
struct EndedRun {
  TrainResult result;
  std::string failure;  // "" when it trained to its end

  double loss() const { return failure.empty() ? result.evals.back().loss : NAN; }
};

struct Results {
  nlohmann::json comparison;                                         // what was compared: must stay when it goes on
  std::vector<std::string> commands;                                 // that began it and went on with it
  std::map<std::pair<std::string, std::string>, Measured> measured;  // by label and size
  std::map<RunName, EndedRun> ended;
  nlohmann::json conclusions = nlohmann::json::object();  // what follows from the runs, for whoever reads the file

  /// Writes results.json; steps stay in metrics.jsonl alone.
  void write(const std::filesystem::path& folder) const;
};

/// Those of a folder, without the steps, evaluations and conclusions. Throws Error for a file that is damaged or of
/// another version, UsageError for a folder that holds no comparison.
Results read_results(const std::filesystem::path& folder);

/// Where a run that has not ended stands on the disk.
struct RunBegun {
  int64_t step = 0;
  bool evaluated = true;  // an evaluation that is due at this step was made
};

/// Reads metrics.jsonl: gives the runs that have ended their steps and evaluations, returns the first ones of those
/// that have begun, and leaves nothing else in it. Throws Error when it has no evaluation of a run that ended.
std::map<RunName, TrainResult> cut_metrics(const std::filesystem::path& folder, Results&,
                                           const std::map<RunName, RunBegun>& begun);

}  // namespace motet
