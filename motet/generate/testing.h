// Models and numbers that the tests of caches share.
#pragma once
#include "motet/models/testing.h"

namespace motet::testing {

inline constexpr int64_t kTokens = 40;

/// A model of kTokens tokens in float64 whose next token depends on more than the last one.
inline Model wide(const nlohmann::json& attention, const nlohmann::json& model = nlohmann::json::object()) {
  nlohmann::json sizes = model;
  if (!sizes.contains("initializer_range")) sizes["initializer_range"] = 0.3;
  ModelConfig config = tiny(sizes, attention);
  config.context = kTokens;
  Model made = fresh(config);
  made->to(at::kDouble);
  at::NoGradGuard no_grad;
  for (const auto& item : made->named_parameters())  // which begins with zeros
    if (item.key().ends_with("relative_bias")) item.value().normal_();
  return made;
}

inline Tensor random_ids(const Model& model, int64_t batch, int64_t tokens) {
  return at::randint(model->config().vocab_size, {batch, tokens}, at::kLong);
}

inline double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

/// Every mechanism and preset, and options beside them that a cache meets.
inline std::vector<nlohmann::json> all_attentions() {
  std::vector<nlohmann::json> all;
  for (const MechanismEntry& entry : mechanism_registry()) {
    all.push_back({{"mechanism", entry.name}});
    for (const Preset& preset : entry.presets)
      if (preset.attention != all.back()) all.push_back(preset.attention);
  }
  all.push_back({{"mechanism", "softmax"}, {"position_bias", "alibi"}, {"window", 9}});
  all.push_back({{"mechanism", "softmax"}, {"position_bias", "relative"}, {"window", 7}});
  all.push_back({{"mechanism", "dcmha"}, {"window", 5}, {"window_pattern", "LG"}, {"static", true}});
  all.push_back({{"mechanism", "softmax"}, {"num_heads", 4}, {"num_kv_heads", 2}, {"window", 1}});
  all.push_back({{"mechanism", "dcmha"}, {"groups", 2}, {"num_heads", 8}, {"head_dim", 6}});
  all.push_back({{"mechanism", "dcmha"}, {"where", "post"}, {"window", 5}, {"layers", "last"}});
  all.push_back({{"mechanism", "talking_heads"}, {"collinear", "exact"}, {"dynamic", "both"}});
  all.push_back({{"mechanism", "differential"}, {"compose", true}});
  all.push_back({{"mechanism", "differential"}, {"version", "v2"}, {"pairs", "across"}});
  all.push_back({{"mechanism", "differential"}, {"num_heads", 4}, {"num_kv_heads", 2}, {"position_bias", "alibi"}});
  for (const char* mechanism : {"softmax", "coca"}) {
    for (const char* scaling : {"linear", "ntk"})
      all.push_back({{"mechanism", mechanism}, {"rope_scaling", scaling}, {"rope_factor", 4.0}});
    for (const char* scaling : {"dynamic", "llama3"})
      all.push_back(
          {{"mechanism", mechanism}, {"rope_scaling", scaling}, {"rope_factor", 4.0}, {"rope_trained_length", 16}});
  }
  return all;
}

}  // namespace motet::testing
