#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "motet/layers/norms.h"
#include "motet/models/options.h"

namespace motet {

/// What a model is made of.
struct ModelConfig {
  ModelOptions options;
  nlohmann::json attention;  // [model.attention], resolved for its mechanism
  int64_t vocab_size = 0;
  int64_t context = 0;  // trained length: the longest input
  /// Of matrix products, bfloat16 or float16, as in training with that train.dtype; none: that of the parameters.
  std::optional<at::ScalarType> autocast = {};

  int64_t hidden_size() const { return options.hidden_size; }
  int64_t num_layers() const { return options.num_layers; }
  int64_t num_blocks() const { return options.shared_layers ? 1 : options.num_layers; }  // with own parameters
  int64_t embedding_width() const;                                                       // of a token
  int64_t intermediate_size() const;  // resolved: 0 means 8/3 hidden (gated) or 4 hidden
  bool causal() const { return options.causal; }
  bool gated() const { return options.block == BlockKind::sequential; }  // and RMS norms
  bool parallel() const { return options.block == BlockKind::parallel; }
  bool post_norm() const { return options.norm_place == NormPlace::post; }
  bool learned_positions() const { return options.positions == PositionKind::learned; }
  bool masked_head() const { return options.head == HeadKind::masked; }
  NormKind norm_kind() const { return gated() ? NormKind::rms : NormKind::layer; }
  Activation activation() const;  // of the feed-forward, resolved: silu (gated) or gelu
  /// [model.attention] as a layer takes it: nothing rotates where positions are learned.
  nlohmann::json layer_attention() const;
};

/// Throws UsageError naming the option when options of [model] do not go together.
void check_form(const ModelConfig&);

}  // namespace motet
