#pragma once
#include <filesystem>
#include <optional>

#include "motet/checkpoints/companions.h"
#include "motet/compare/arms.h"
#include "motet/compare/results.h"
#include "motet/compare/sizes.h"
#include "motet/compare/sweep.h"
#include "motet/models/cost.h"
#include "motet/statistics/statistics.h"
#include "motet/train/trainer.h"

namespace motet {

struct CompareOptions {
  std::vector<Arm> arms;  // the first plain softmax arm, else the first, is the baseline
  int64_t seeds = 1;
  Match match = Match::parameters;
  double margin = 0.01;           // nats: below kSeedsForVerdict seeds, a difference has to lie beyond it
  int64_t jobs = 1, threads = 1;  // models at once; threads of all of them
  std::filesystem::path folder;   // metrics.jsonl and models/ go here
  Companions companions;          // that the models take along
  std::optional<Sweep> sweep;     // wants two seeds
  std::vector<ModelSize> sizes;   // each is a comparison of its own; none: the one configured
};

/// From how many seeds on the corrected p-value alone decides.
inline constexpr size_t kSeedsForVerdict = 5;

/// What one mechanism came to.
struct ArmResult {
  Arm arm;
  ModelConfig config;
  ModelCost cost;
  double tokens_per_second = 0;  // training, measured alone before the runs; 0 = not measured
  int64_t peak_bytes = 0;        // resident memory of a training step beyond what was there before; 0 = not measured
  std::vector<std::optional<EndedRun>> swept;  // of the first seed, by value of the sweep; nothing: it did not end
  std::optional<size_t> chosen;                // the value of the lowest loss among them, when all have ended
  std::string failure;            // where a run diverged, "seed 2, step 3: the loss is nan ..."; "" = none did
  std::vector<TrainResult> runs;  // by reported seed; empty: it did not end
  std::vector<double> losses;     // last validation loss by reported seed, NaN: it did not end; none after a failure
  Difference difference;          // of the losses to the baseline's, by seed
  double p_value = difference.p;  // corrected for the number of arms (Holm)
  Model model{nullptr};           // of the first reported seed that ended

  std::vector<double> finished() const;  // the losses that there are
};
struct Comparison {
  std::vector<ArmResult> arms;
  size_t baseline = 0;
  double margin = 0.01;
  int64_t threads = 1;         // of each model
  std::string size;            // its name; "" without --sizes
  std::optional<Sweep> sweep;  // the first seed chose, and is not reported
  bool interrupted = false;    // some runs did not end

  size_t first_reported() const { return sweep ? 1 : 0; }  // number of the first seed in ArmResult::runs
  /// By the mean difference to the baseline, which judge() makes of the seeds that both have ended; by mean loss where
  /// none has such a seed. Null when no run has ended.
  const ArmResult* lowest() const;
  std::string failures() const;  // "dcmha diverged: seed 1, step 3: ...; ..."; "" when there are none
};

/// The configurations, matched in size, without training anything (--dry-run): one comparison, or one for each size.
/// Throws UsageError for sizes that are one, and for keys of the sweep or of a contender that the training does not
/// read.
std::vector<Comparison> planned_comparisons(const RunConfig&, const TextData&, const CompareOptions&);
/// The only one, without sizes.
Comparison planned_comparison(const RunConfig&, const TextData&, const CompareOptions&);

/// Run number `seed`, from 0, of an arm, with a value of the sweep.
RunName run_name(const Comparison&, const ArmResult&, const TrainOptions&, size_t seed, std::optional<size_t> value);

/// The value of the lowest loss, the first of equal ones: nothing while one has not ended, or when all diverged.
std::optional<size_t> best_value(const std::vector<std::optional<EndedRun>>& swept);

/// Whether the budget is time, so that models take different numbers of steps.
bool by_minutes(const RunConfig&);
/// Steps of a run of the arm; of a budget in minutes the mean of the reported runs that ended.
double steps_of(const ArmResult&, const RunConfig&);
/// Of a run, forward and backward: 3 times those of the forward passes.
double training_flops(const ArmResult&, const RunConfig&);

/// Fills differences and p-values from the losses.
void judge(Comparison&);

/// "better" or "worse" (p < 0.05 after Holm's correction), "within noise", "n too small" (fewer than five pairs, and
/// the 95 % interval of the difference does not lie beyond the margin), "one seed", "not finished", "diverged", "no
/// baseline" (it diverged) or "baseline".
std::string verdict(const Comparison&, const ArmResult&);

}  // namespace motet
