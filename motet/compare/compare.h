#pragma once
#include <filesystem>

#include "motet/compare/arms.h"
#include "motet/compare/statistics.h"
#include "motet/models/cost.h"
#include "motet/train/trainer.h"

namespace motet {

struct CompareOptions {
  std::vector<Arm> arms;  // the first plain softmax arm, else the first, is the baseline
  int64_t seeds = 1;
  Match match = Match::parameters;
  double margin = 0.01;           // nats: below kSeedsForVerdict seeds, a difference has to lie beyond it
  int64_t jobs = 1, threads = 1;  // models at once; threads of all of them
  std::filesystem::path folder;   // metrics.jsonl and models/ go here
};

/// From how many seeds on the corrected p-value alone decides.
inline constexpr size_t kSeedsForVerdict = 5;

/// What one mechanism came to.
struct ArmResult {
  Arm arm;
  ModelConfig config;
  ModelCost cost;
  double tokens_per_second = 0;   // training, measured alone before the runs; 0 = not measured
  int64_t peak_bytes = 0;         // resident memory of a training step beyond what was there before; 0 = not measured
  std::string failure;            // where a run diverged, "seed 2, step 3: the loss is nan ..."; "" = none did
  std::vector<TrainResult> runs;  // by seed; empty: it did not end
  std::vector<double> losses;     // last validation loss by seed, NaN: the run did not end; none after a failure
  Difference difference;          // of the losses to the baseline's, by seed
  double p_value = difference.p;  // corrected for the number of arms (Holm)
  Model model{nullptr};           // of the first seed that ended

  std::vector<double> finished() const;  // the losses that there are
};
struct Comparison {
  std::vector<ArmResult> arms;
  size_t baseline = 0;
  double margin = 0.01;
  int64_t threads = 1;              // of each model
  bool interrupted = false;         // some runs did not end
  const ArmResult* lowest() const;  // by mean loss, of the arms that have one; null when none has
  std::string failures() const;     // "dcmha diverged: seed 1, step 3: ...; ..."; "" when there are none
};

/// The configurations, matched in size, without training anything (--dry-run).
Comparison planned_comparison(const RunConfig&, const TextData&, const CompareOptions&);

/// Measures the speed of each planned model alone, then trains all of them: run i of every arm begins with the same
/// numbers, where shapes agree, and reads the same batches in the same order. Writes metrics.jsonl as it goes and a
/// model folder for every run. A run that diverges ends its arm and no other. Ctrl-C ends the comparison with what had
/// finished (`interrupted`), or throws Interrupted when nothing had. Throws any other error of a run.
void run_comparison(Comparison& planned, const RunConfig&, const TextData&, const CompareOptions&);

/// Fills differences and p-values from the losses.
void judge(Comparison&);

/// "better" or "worse" (p < 0.05 after Holm's correction), "within noise", "n too small" (fewer than five pairs, and
/// the 95 % interval of the difference does not lie beyond the margin), "one seed", "not finished", "diverged", "no
/// baseline" (it diverged) or "baseline".
std::string verdict(const Comparison&, const ArmResult&);

}  // namespace motet
