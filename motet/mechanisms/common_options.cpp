#include "motet/mechanisms/mechanism.h"

namespace motet {

const OptionTable& common_attention_options() {
  using enum OptionType;
  static const OptionTable table{
      {"num_heads", integer, 4, 1, 1024, {}, "heads of the plain Transformer; each mechanism derives its own counts from it"},
      {"num_kv_heads", integer, 0, 0, 1024, {}, "key and value heads (grouped queries); 0 = num_heads"},
      {"head_dim", integer, 0, 0, 4096, {}, "width of a head; 0 = hidden_size / num_heads"},
      {"bias", boolean, false, {}, {}, {}, "biases on the q, k, v and output projections"},
      {"qk_norm", boolean, false, {}, {}, {}, "RMS norm of queries and keys over the head width, before rotary embedding"},
      {"qk_norm_eps", number, 1e-6, 0, 1, {}, "epsilon of the QK norm"},
      {"window", integer, 0, 0, 1e9, {}, "keys that a query of a local layer sees, itself included; 0 = all"},
      {"window_pattern", string, "local", {}, {}, {"local", "LG", "LGLL", "LGL6"}, "which layers are local (L) and which global (G), repeated over depth"},
      {"window_mask", string, "exact", {}, {}, {"exact", "released"}, "released: one key more, as the released DCFormer prefill"},
      {"position_bias", string, "none", {}, {}, {"none", "alibi", "relative"}, "bias on the logits: fixed slopes, or learned by distance (T5 buckets)"},
      {"rope_base", number, 10000.0, 1, 1e12, {}, "base of the rotary embedding"},
      {"rope_fraction", number, 1.0, 0, 1, {}, "part of the head width that rotates; 0 = no rotary embedding"},
      {"rope_pairing", string, "half", {}, {}, {"half", "interleaved"}, "which dimensions form a rotary pair: (j, j + r/2) or (2j, 2j + 1)"},
      {"rope_scaling", string, "none", {}, {}, {"none", "linear", "ntk", "dynamic", "llama3"}, "how positions are rescaled for longer contexts"},
      {"rope_factor", number, 1.0, 1, 1e6, {}, "factor of the scaling"},
      {"rope_trained_length", integer, 0, 0, 1e9, {}, "length that dynamic and llama3 scaling extend; 0 = the model's context"},
      {"rope_low_freq_factor", number, 1.0, 0, 1e6, {}, "llama3: wavelengths above trained length / this are divided by the factor"},
      {"rope_high_freq_factor", number, 4.0, 0, 1e6, {}, "llama3: wavelengths below trained length / this are kept"},
  };
  return table;
}

}  // namespace motet
