#include "motet/models/model_config.h"

#include "motet/core/error.h"
#include "motet/mechanisms/options.h"

namespace motet {

int64_t ModelConfig::embedding_width() const {
  return options.embedding_size > 0 ? options.embedding_size : options.hidden_size;
}

int64_t ModelConfig::intermediate_size() const {
  if (options.intermediate_size > 0) return options.intermediate_size;
  return gated() ? (8 * options.hidden_size + 2) / 3 : 4 * options.hidden_size;
}

Activation ModelConfig::activation() const {
  return options.activation.value_or(gated() ? Activation::silu : Activation::gelu);
}

nlohmann::json ModelConfig::layer_attention() const {
  nlohmann::json all = attention;
  if (learned_positions()) all["rope_fraction"] = 0.0;
  return all;
}

void check_form(const ModelConfig& c) {
  const ModelOptions& o = c.options;
  if (o.embedding_size > 0 && o.tie_embeddings && !c.masked_head())
    fail_usage("model.embedding_size: ", o.embedding_size,
               " with tie_embeddings, want a model with an output matrix of its own, or model.head = masked");
  if (c.post_norm() && c.parallel())
    fail_usage("model.norm_place: post with model.block = parallel, want a sequential block");
  if (o.first_position > 0 && !c.learned_positions())
    fail_usage("model.first_position: ", o.first_position, " without a table, want model.positions = learned");
  if (c.learned_positions()) {
    for (const char* key : {"rope_scaling", "rope_base"})
      if (c.attention.at(key) != find_option(common_attention_options().table(), key, "model.attention").default_value)
        fail_usage("model.attention.", key, ": ", c.attention.at(key).dump(),
                   " with model.positions = learned, where nothing rotates, want it left out");
    const std::string form = c.attention.value("form", c.attention.value("collinear", "none"));
    if (form == "exact" || form == "strict")
      fail_usage("model.positions: learned with the ", form,
                 " form of coca, whose keys are tied by what rotates, want rope");
  }
  const std::string pattern = c.attention.value("window_pattern", "local");
  if (o.shared_layers && c.attention.value("window", 0) > 0 && pattern != "local")
    fail_usage("model.shared_layers: one layer has one window, want model.attention.window_pattern = local and not ",
               pattern);
  if (o.shared_layers && c.attention.value("layers", "all") != "all")
    fail_usage("model.shared_layers: one layer has one mechanism, want model.attention.layers = all and not ",
               c.attention.value("layers", ""));
}

}  // namespace motet
