#pragma once
#include <mutex>
#include <optional>

#include "motet/experiments/results.h"
#include "motet/train/text_data.h"

// Runs the cells of experiments: a kind of cell is a row of a table.
namespace motet {

struct LabOptions {
  std::filesystem::path data = "data";  // where the prepared data of experiments lie
  std::string device = "auto";
  int64_t threads = 1;  // of a cell
};

/// What a cell tells while it runs: the part that is done, 0 to 1.
using CellProgress = std::function<void(double part)>;

/// Runs cells, several at once if asked from several threads; what they read is read once.
class Lab {
 public:
  explicit Lab(LabOptions options) : options_(std::move(options)) {}

  /// Every option of a cell with its default, and what tells its data apart. Throws UsageError for what its kind does
  /// not know, and for data that is not there.
  nlohmann::json configuration(const Experiment&, const ExperimentCell&);
  /// What a cell can measure, by name; "accuracy{...}" where the rest of a name is known when it has run. Throws
  /// UsageError as configuration() does.
  std::vector<std::string> metrics(const Experiment&, const ExperimentCell&);
  /// Throws Interrupted on Ctrl-C: the cell is lost.
  CellResult run(const Experiment&, const ExperimentCell&, const CellProgress& = [](double) {});
  /// What it would take on this machine, measured in a few steps; nothing where that cannot be told.
  std::optional<double> seconds(const Experiment&, const ExperimentCell&);

  /// Whether cells of the experiment measure time, or train for minutes, so that nothing may run beside them. Throws
  /// UsageError for a kind that is not known.
  static bool alone(const Experiment&);

  /// The processor and the threads of a cell, or the GPU.
  std::string machine() const;
  const LabOptions& options() const { return options_; }
  /// The data of a run, read once.
  std::shared_ptr<const TextData> data_of(const RunConfig&);

 private:
  LabOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const TextData>> data_;
};

/// Whether a metric is among the names of Lab::metrics(): one of them, or "accuracy{held out}" of "accuracy{...}".
bool is_measured(const std::string& metric, const std::vector<std::string>& names);

/// A kind of cell: what stands in an experiment's `kind`.
struct CellKind {
  const char* name;
  bool alone;  // it measures time: nothing runs beside it
  nlohmann::json (*configuration)(Lab&, const ExperimentCell&);
  std::vector<std::string> (*metrics)(Lab&, const ExperimentCell&);
  void (*run)(Lab&, const ExperimentCell&, CellResult&, const CellProgress&);  // fills what it measures
  std::optional<double> (*seconds)(Lab&, const ExperimentCell&);
};
extern const CellKind kTrainCell, kBenchCell, kFitCell;

}  // namespace motet
