#pragma once
#include "motet/checkpoints/companions.h"
#include "motet/commands/run_metrics.h"
#include "motet/core/progress.h"
#include "motet/train/resume.h"

namespace motet {

/// A training in its folder: its steps, metrics.jsonl and checkpoints. What it is made of must outlive it.
class TrainRun {
 public:
  /// The folder exists and is the first process's own, which alone writes there; throws as Trainer does.
  TrainRun(const RunConfig&, const TextData&, Model, const Companions&, const std::vector<std::string>& frozen,
           const std::filesystem::path& folder, std::shared_ptr<Processes>);

  /// Continues the run of the folder; throws as restore (train/resume.h).
  void go_on(const ResumePoint&);
  /// Makes what is left of the steps. Throws Interrupted, Diverged when the run stopped, with the line that says where;
  /// the step before is on the disk then, unless its own weights are those that diverged, and `stopped` was called with
  /// what stopped it ("": somebody did), of which a failure is only warned of.
  using Stopped = std::function<void(const std::string& why)>;
  TrainResult run(const RunMachine&, const Stopped&);
  /// The last evaluation of a run that has all of its steps, once more; changes nothing.
  TrainResult scored_again();

  Trainer& trainer() { return trainer_; }
  /// The last that is stored.
  std::optional<std::filesystem::path> last_checkpoint() const;

 private:
  TrainEvents events(RunMetrics*, Progress&);
  std::string advice() const;
  Snapshot snapshot();
  void save();
  void finish(const Stopped&, const std::string& why);
  void tell(const Stopped&, const std::string& why);
  std::string last_checkpoint_text() const;

  const RunConfig& run_;
  const TextData& data_;
  const Companions& companions_;
  const std::vector<std::string>& frozen_;
  std::filesystem::path folder_;
  Trainer trainer_;
  CheckpointWriter checkpoints_;
  std::optional<EvalRecord> evaluation_;  // of the step just made
  bool saved_ = true;                     // where the trainer stands is on the disk
};

}  // namespace motet
