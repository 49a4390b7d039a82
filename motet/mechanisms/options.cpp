#include "motet/mechanisms/options.h"

namespace motet {

const Fields<AttentionOptions>& common_attention_options() {
  using A = AttentionOptions;
  using Pairing = RotaryOptions::Pairing;
  using Scaling = RotaryOptions::Scaling;
  static const Fields<A> table{
      {"layers",
       &A::layers,
       {{"all", MechanismLayers::all}, {"last", MechanismLayers::last}},
       "last: the last layer alone has the mechanism and its window, the others plain softmax attention to all keys"},
      {"num_heads",
       &A::num_heads,
       {1, 1024},
       "heads of the plain Transformer; each mechanism derives its own counts from it"},
      {"num_kv_heads", &A::num_kv_heads, {0, 1024}, "key and value heads (grouped queries); 0 = num_heads"},
      {"head_dim", &A::head_dim, {0, 4096}, "width of a head; 0 = hidden_size / num_heads"},
      {"bias", &A::bias, "biases on the q, k, v and output projections"},
      {"qk_norm", &A::qk_norm, "RMS norm of queries and keys over the head width, before rotary embedding"},
      {"qk_norm_eps", &A::qk_norm_eps, {0, 1}, "epsilon of the QK norm", where("qk_norm", {true})},
      {"output_gate", &A::output_gate,
       "each head's output is multiplied by the sigmoid of a projection of the layer's input"},
      {"window", &A::window, {0, 1e9}, "keys that a query of a local layer sees, itself included; 0 = all"},
      {"window_pattern",
       &A::window_pattern,
       {{"local", "L"}, {"LG", "LG"}, {"LGLL", "LGLL"}, {"LGL6", "LGLLLLLL"}},
       "which layers are local (L) and which global (G), repeated over depth",
       unless("window", {0})},
      {"window_mask",
       &A::window_mask,
       {{"exact", WindowMask::exact}, {"released", WindowMask::released}},
       "released: one key more, as the released DCFormer prefill",
       unless("window", {0})},
      {"position_bias",
       &A::position_bias,
       {{"none", PositionBias::none}, {"alibi", PositionBias::alibi}, {"relative", PositionBias::relative}},
       "bias on the logits: fixed slopes, or learned by distance (T5 buckets)"},
      {"rope_base", &A::rope_base, {1, 1e12}, "base of the rotary embedding"},
      {"rope_fraction", &A::rope_fraction, {0, 1}, "part of the head width that rotates; 0 = no rotary embedding"},
      {"rope_pairing",
       &A::rope_pairing,
       {{"half", Pairing::half}, {"interleaved", Pairing::interleaved}},
       "which dimensions form a rotary pair: (j, j + r/2) or (2j, 2j + 1)"},
      {"rope_scaling",
       &A::rope_scaling,
       {{"none", Scaling::none},
        {"linear", Scaling::linear},
        {"ntk", Scaling::ntk},
        {"dynamic", Scaling::dynamic},
        {"llama3", Scaling::llama3}},
       "how positions are rescaled for longer contexts"},
      {"rope_factor", &A::rope_factor, {1, 1e6}, "factor of the scaling", unless("rope_scaling", {"none"})},
      {"rope_trained_length",
       &A::rope_trained_length,
       {0, 1e9},
       "length that dynamic and llama3 scaling extend; 0 = the model's context"},
      {"rope_low_freq_factor",
       &A::rope_low_freq_factor,
       {0, 1e6},
       "llama3: wavelengths above trained length / this are divided by the factor",
       where("rope_scaling", {"llama3"})},
      {"rope_high_freq_factor",
       &A::rope_high_freq_factor,
       {0, 1e6},
       "llama3: wavelengths below trained length / this are kept",
       where("rope_scaling", {"llama3"})},
  };
  return table;
}

}  // namespace motet
