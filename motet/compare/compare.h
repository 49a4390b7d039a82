#pragma once
#include <filesystem>

#include "motet/compare/arms.h"
#include "motet/models/cost.h"
#include "motet/train/trainer.h"

namespace motet {

struct CompareOptions {
  std::vector<Arm> arms;  // the first plain softmax arm, else the first, is the baseline
  int64_t seeds = 1;
  Match match = Match::parameters;
  int64_t jobs = 1, threads = 1;  // models at once; threads of all of them
  std::filesystem::path folder;   // metrics.jsonl and models/ go here
};

/// What one mechanism came to.
struct ArmResult {
  Arm arm;
  ModelConfig config;
  ModelCost cost;
  double tokens_per_second = 0;   // training, measured alone before the runs; 0 = not measured
  int64_t peak_bytes = 0;         // resident memory of a training step beyond what was there before; 0 = not measured
  std::string failure;            // where a run diverged, "seed 2, step 3: the loss is nan ..."; "" = all were finished
  std::vector<TrainResult> runs;  // by seed
  std::vector<double> losses;     // last validation loss by seed; none after a failure
  double p_value = 1;             // paired test of the losses against the baseline's; NaN with one seed or a failure
  Model model{nullptr};           // of the first seed
};
struct Comparison {
  std::vector<ArmResult> arms;
  size_t baseline = 0;
  const ArmResult* best() const;  // lowest mean loss; null when every arm failed
  std::string failures() const;   // "dcmha diverged: seed 1, step 3: ...; ..."; "" when there are none
};

/// The configurations, matched in size, without training anything (--dry-run).
Comparison planned_comparison(const RunConfig&, const TextData&, const CompareOptions&);

/// Measures the speed of each planned model alone, then trains all of them with the same batches in the same order.
/// Writes metrics.jsonl as it goes and a model folder for every run. A run that diverges ends its arm and no other;
/// throws any other error of a run, Interrupted on Ctrl-C.
void run_comparison(Comparison& planned, const RunConfig&, const TextData&, const CompareOptions&);

/// "better", "worse", "within noise" (p >= 0.05), "one seed", "diverged", "no baseline" (it diverged) or "baseline".
std::string verdict(const Comparison&, const ArmResult&);

}  // namespace motet
