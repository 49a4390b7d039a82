#pragma once
#include <string_view>

#include "motet/core/fields.h"
#include "motet/layers/options.h"

namespace motet {

enum class PositionBias { none, alibi, relative };
enum class WindowMask { exact, released };
/// Which layers of a model have its mechanism.
enum class MechanismLayers { all, last };

/// [model.attention]: the options that every mechanism has.
struct AttentionOptions {
  MechanismLayers layers = MechanismLayers::all;
  int64_t num_heads = 4, num_kv_heads = 0, head_dim = 0;  // 0: num_kv_heads() and head_dim() of projected.h say
  bool bias = false, qk_norm = false;
  double qk_norm_eps = 1e-6;
  bool output_gate = false;
  int64_t window = 0;
  std::string_view window_pattern = "L";  // L and G, repeated over depth
  WindowMask window_mask = WindowMask::exact;
  PositionBias position_bias = PositionBias::none;
  double rope_base = 10000, rope_fraction = 1;
  RotaryOptions::Pairing rope_pairing = RotaryOptions::Pairing::half;
  RotaryOptions::Scaling rope_scaling = RotaryOptions::Scaling::none;
  double rope_factor = 1;
  int64_t rope_trained_length = 0;
  double rope_low_freq_factor = 1, rope_high_freq_factor = 4;
};
const Fields<AttentionOptions>& common_attention_options();

/// Whose hidden states a map over heads is made from, and where it works: around the softmax.
struct Sides {
  bool query = true, key = true;
  bool operator==(const Sides&) const = default;
};
struct Places {
  bool pre = true, post = true;
  bool operator==(const Places&) const = default;
};

}  // namespace motet
