#pragma once
#include "motet/compare/options.h"
#include "motet/train/run_config.h"

namespace motet {

/// One contender of a comparison: a label, its [model.attention] section (unresolved) and what it has of [train] for
/// itself.
struct Arm {
  std::string label;
  nlohmann::json attention;
  nlohmann::json train = nlohmann::json::object();
};

/// "mha,dcmha:rank=1:learning_rate=1e-3" -> arms: presets and mechanisms by name, each with options behind colons: of
/// its attention, or what own_training() names of its training. `common` is what the configuration says about
/// [model.attention]; options that only some mechanisms have reach those that have them. Empty: the default comparison.
/// Throws UsageError with the nearest name; no arm twice.
std::vector<Arm> parse_arms(const std::string& list, const nlohmann::json& common);

/// The model of an arm: the common sizes, the arm's attention.
ModelConfig arm_config(const RunConfig&, const Arm&, int64_t vocab_size);
/// The [train] of an arm's run with this number, from 0: both of its seeds are so many above the configured ones.
TrainOptions arm_train(const RunConfig&, const Arm&, size_t number);

/// Sets the feed-forward width of `config` so that its parameters (or FLOPs per token) come as near to `target` as
/// whole numbers allow. Throws UsageError when even a width of 1 is too much.
void match_size(ModelConfig& config, Match, double target);
double size_of(const ModelConfig&, Match);

}  // namespace motet
