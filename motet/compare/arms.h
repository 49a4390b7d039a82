#pragma once
#include "motet/train/run_config.h"

namespace motet {

/// One contender of a comparison: a label and its [model.attention] section (unresolved).
struct Arm {
  std::string label;
  nlohmann::json attention;
};

/// "mha,dcmha:rank=1:sides=query" -> arms: presets and mechanisms by name, each with options behind colons. `common` is
/// what the configuration says about [model.attention]; options that only some mechanisms have reach those that have
/// them. Empty: the default comparison. Throws UsageError with the nearest name; no arm twice.
std::vector<Arm> parse_arms(const std::string& list, const nlohmann::json& common);

/// The model of an arm: the common sizes, the arm's attention.
ModelConfig arm_config(const RunConfig&, const Arm&, int64_t vocab_size);

enum class Match { parameters, flops, none };
Match parse_match(const std::string&);

/// Sets the feed-forward width of `config` so that its parameters (or FLOPs per token) come as near to `target` as
/// whole numbers allow. Throws UsageError when even a width of 1 is too much.
void match_size(ModelConfig& config, Match, double target);
double size_of(const ModelConfig&, Match);

}  // namespace motet
