#pragma once
#include <optional>

#include "motet/core/fields.h"
#include "motet/layers/options.h"

namespace motet {

enum class BlockKind { sequential, parallel, sequential_layer_norm };
enum class Initializer { normal, kaiming, xavier, pythia };
/// Norms before attention and feed-forward and one at the end, or behind each of their sums (BERT).
enum class NormPlace { pre, post };
/// Where tokens stand is said by the attention's rotary embedding, or by a table added to the token's embedding.
enum class PositionKind { rope, learned };
/// A matrix makes logits; or a dense layer, an activation and a norm before it and a bias behind it (BERT).
enum class HeadKind { linear, masked };

/// [model] beside [model.attention]; vocabulary and context come from the data and the training.
struct ModelOptions {
  int64_t hidden_size = 64, num_layers = 2;
  int64_t embedding_size = 0;     // 0: hidden_size; else a matrix makes hidden_size of it
  int64_t intermediate_size = 0;  // 0: ModelConfig::intermediate_size says
  BlockKind block = BlockKind::sequential;
  NormPlace norm_place = NormPlace::pre;
  std::optional<Activation> activation;  // none: ModelConfig::activation says
  bool shared_layers = false;
  bool causal = true;
  PositionKind positions = PositionKind::rope;
  int64_t first_position = 0;  // row of position 0 in the table of learned ones
  int64_t token_types = 0;     // 0: none
  bool embedding_norm = false;
  HeadKind head = HeadKind::linear;
  double norm_eps = 1e-5;
  bool tie_embeddings = false;
  Initializer initializer = Initializer::normal;
  double initializer_range = 0.02;
};
const Fields<ModelOptions>& model_options();

}  // namespace motet
