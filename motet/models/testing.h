#pragma once
#include "motet/models/model.h"

namespace motet::testing {

/// A resolved configuration of a tiny model from given options.
inline ModelConfig tiny(nlohmann::json model = {}, nlohmann::json attention = {}, int64_t vocab_size = 11,
                        int64_t context = 16) {
  if (model.is_null() || !model.contains("hidden_size")) model["hidden_size"] = 16;
  return {model_options().parse(model, "model"), resolve_attention(attention, "model.attention"), vocab_size, context};
}

inline Model fresh(const ModelConfig& config, uint64_t seed = 1) {
  Model model(config);
  model->initialize(seed);
  return model;
}

}  // namespace motet::testing
