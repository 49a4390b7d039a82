#pragma once
#include <string>
#include <vector>

#include "motet/models/model.h"
#include "motet/train/options.h"

namespace motet {

/// That of a model trained in this dtype; none for float32 and float64.
std::optional<at::ScalarType> autocast_of(TrainDtype);
/// That of its products.
at::ScalarType product_type(TrainDtype);

/// A text or prepared data of [data] mixture, and its weight among them.
struct MixtureSource {
  std::string path;
  double weight = 1;
};

/// A run's configuration, checked. `attention_given` is what was said about [model.attention], unresolved, so
/// that a comparison can resolve it for each mechanism.
struct RunConfig {
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  nlohmann::json attention_given;
  std::vector<std::string> texts;      // paths; empty = built-in text
  std::vector<MixtureSource> mixture;  // in place of texts; empty = none
  nlohmann::json task;                 // in place of texts: its name and all of its options; null = none

  ModelConfig model_config(int64_t vocab_size) const;  // for the mechanism of attention_given
  nlohmann::json as_given() const;                     // all tables, [model.attention] as it was given
  nlohmann::json resolved() const;                     // everything, as config.toml shows it
};

/// A configuration that is stored without the keys of [train] that the optimizer or schedule does not read, which
/// earlier versions took.
nlohmann::json without_idle_keys(nlohmann::json config);

/// Defaults under `base`, under the TOML file request["config"], under request["set"] ([["model.hidden_size","64"],
/// ...]) and request["texts"]. A budget replaces those below it, whatever its unit, and a
/// text, mixture or task what another said; a task's train.context is that of an episode and its answer. Throws
/// UsageError for unknown sections and keys (nearest named), wrong types and ranges.
RunConfig read_run_config(const nlohmann::json& request, const nlohmann::json& base = nlohmann::json::object());

/// TOML with every key, its default (that of `base` where it has one) and a sentence, for `motet train --options`; read
/// back by read_run_config it is the same configuration.
std::string describe_options(const nlohmann::json& base);

}  // namespace motet
