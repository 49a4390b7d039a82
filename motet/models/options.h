#pragma once
#include <optional>

#include "motet/core/fields.h"
#include "motet/layers/options.h"

namespace motet {

enum class BlockKind { sequential, parallel, sequential_layer_norm };
enum class Initializer { normal, kaiming, xavier, pythia };

/// [model] beside [model.attention]; vocabulary and context come from the data and the training.
struct ModelOptions {
  int64_t hidden_size = 64, num_layers = 2;
  int64_t embedding_size = 0;     // 0: hidden_size; else a matrix makes hidden_size of it
  int64_t intermediate_size = 0;  // 0: ModelConfig::intermediate_size says
  BlockKind block = BlockKind::sequential;
  std::optional<Activation> activation;  // none: ModelConfig::activation says
  bool causal = true;
  double norm_eps = 1e-5;
  bool tie_embeddings = false;
  Initializer initializer = Initializer::normal;
  double initializer_range = 0.02;
};
const Fields<ModelOptions>& model_options();

}  // namespace motet
