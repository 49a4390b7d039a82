#include "motet/models/model.h"

namespace motet {

const OptionTable& model_options() {
  using enum OptionType;
  static const OptionTable table{
      {"hidden_size", integer, 64, 1, 65536, {}, "width of the residual stream"},
      {"num_layers", integer, 2, 1, 1024, {}, "number of layers"},
      {"intermediate_size",
       integer,
       0,
       0,
       1e6,
       {},
       "width of the feed-forward; 0 = 8/3 hidden_size (sequential) or 4 hidden_size (others)"},
      {"block",
       string,
       "sequential",
       {},
       {},
       {"sequential", "parallel", "sequential_layer_norm"},
       "LLaMA's layer (RMS norm, SwiGLU), GPT-NeoX's (layer norm, GELU, parallel residual), or that with LLaMA's "
       "residual"},
      {"activation",
       string,
       "default",
       {},
       {},
       {"default", "silu", "gelu", "gelu_tanh"},
       "of the feed-forward; default = silu with RMS norm, else gelu (erf)"},
      {"causal", boolean, true, {}, {}, {}, "each token sees only itself and those before it"},
      {"norm_eps", number, 1e-5, 0, 1, {}, "epsilon of the norms"},
      {"tie_embeddings", boolean, false, {}, {}, {}, "the output matrix is the embedding"},
      {"initializer",
       string,
       "normal",
       {},
       {},
       {"normal", "kaiming", "xavier", "pythia"},
       "first values of the projections"},
      {"initializer_range",
       number,
       0.02,
       0,
       10,
       {},
       "standard deviation of the normal initialiser and of the embedding"},
  };
  return table;
}

}  // namespace motet
