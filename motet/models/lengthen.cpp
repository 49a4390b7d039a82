#include "motet/models/lengthen.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/mechanisms/options.h"

namespace motet {

const std::vector<std::string>& position_options() {
  static const std::vector<std::string> all{"rope_base",           "rope_scaling",         "rope_factor",
                                            "rope_trained_length", "rope_low_freq_factor", "rope_high_freq_factor"};
  return all;
}

ModelConfig lengthened(ModelConfig config, int64_t context, const nlohmann::json& options) {
  nlohmann::json attention = config.attention;
  for (const auto& [key, value] : options.items()) {
    if (std::ranges::find(position_options(), key) == position_options().end())
      fail_usage("model.attention.", key, ": comes from the checkpoint, want one of ", joined(position_options()));
    if (config.learned_positions())
      fail_usage("model.attention.", key, ": the model has learned positions, want it left out");
    attention[key] = value;
  }
  // What the checkpoint's scaling had is forgotten with it; what is given has to have an effect.
  reset_idle(common_attention_options().table(), attention);
  if (options.is_object()) attention.update(options);
  if (config.learned_positions() && context > config.context)
    fail_usage("the model has learned positions for ", config.context,
               " tokens, want --ctx-size of at most that and not ", context);
  if (context > 0 && context != config.context) {
    if (attention.at("rope_trained_length") == 0) attention["rope_trained_length"] = config.context;
    config.context = context;
  }
  config.attention = resolve_attention(attention, "model.attention");
  return config;
}

}  // namespace motet
