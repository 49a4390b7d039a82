#pragma once
#include <set>

#include "motet/train/run_checkpoints.h"
#include "motet/train/trainer.h"

// How a run that stopped goes on: the same step after the same step.
namespace motet {

/// Where a run stands on the disk.
struct ResumePoint {
  std::filesystem::path run, checkpoint;
  nlohmann::json state;   // state.json
  nlohmann::json config;  // RUN/config.toml
};

/// The last checkpoint of a run. Throws Error when the folder holds no run, a run without a checkpoint, or one of an
/// earlier Motet, whose checkpoints hold weights alone.
ResumePoint open_run(const std::filesystem::path& run);

/// state.json: where the trainer stands, what run it is, and of an evaluation at this step "validation_loss" (null of
/// none) and "average_validation_loss", both EvalRecord::compared.
nlohmann::json run_state(const Trainer&, const RunConfig&, const TextData&, const std::vector<std::string>& frozen,
                         const std::optional<EvalRecord>&);

/// Throws UsageError "COMMAND: --resume: train.batch_size was 16 and is 32, want it as it was" for the first key, as
/// "section.key", of a configuration that is not what it was and not among `free`.
void check_unchanged(const std::string& command, const nlohmann::json& was, const nlohmann::json& is,
                     const std::set<std::string>& free);

/// Throws UsageError for what must be as it was, naming it: everything of the configuration but a larger budget, what
/// is evaluated and kept when, memory and place.
void check_same_run(const ResumePoint&, const RunConfig&);
/// `frozen`: with the fixed parameters of a task. Throws UsageError with both lists where they differ.
void check_same_frozen(const ResumePoint&, const std::vector<std::string>& frozen);
/// `hashes`: TextData::hashes of the run. Throws UsageError naming what differs.
void check_same_data(const nlohmann::json& hashes, const TextData&);

/// The trainer, of the model of the checkpoint, goes on after its step. Throws Error for an optimizer.safetensors that
/// is not that of this model and optimiser.
void restore(Trainer&, const ResumePoint&);

/// Takes from metrics.jsonl what came after the checkpoint, and from the folder what killed processes left.
void tidy_run(const ResumePoint&);

}  // namespace motet
