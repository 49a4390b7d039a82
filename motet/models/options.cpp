#include "motet/models/options.h"

namespace motet {

const Fields<ModelOptions>& model_options() {
  using M = ModelOptions;
  static const Fields<M> table{
      {"hidden_size", &M::hidden_size, {1, 65536}, "width of the residual stream"},
      {"num_layers", &M::num_layers, {1, 1024}, "number of layers"},
      {"embedding_size",
       &M::embedding_size,
       {0, 65536},
       "width of a token's embedding, which a matrix brings to hidden_size; 0 = hidden_size, without"},
      {"intermediate_size",
       &M::intermediate_size,
       {0, 1e6},
       "width of the feed-forward; 0 = 8/3 hidden_size (sequential) or 4 hidden_size (others)"},
      {"block",
       &M::block,
       {{"sequential", BlockKind::sequential},
        {"parallel", BlockKind::parallel},
        {"sequential_layer_norm", BlockKind::sequential_layer_norm}},
       "LLaMA's layer (RMS norm, SwiGLU), GPT-NeoX's (layer norm, GELU, parallel residual), or that with LLaMA's "
       "residual"},
      {"activation",
       &M::activation,
       {{"default", std::nullopt},
        {"silu", Activation::silu},
        {"gelu", Activation::gelu},
        {"gelu_tanh", Activation::gelu_tanh}},
       "of the feed-forward; default = silu with RMS norm, else gelu (erf)"},
      {"causal", &M::causal, "each token sees only itself and those before it"},
      {"norm_eps", &M::norm_eps, {0, 1}, "epsilon of the norms"},
      {"tie_embeddings", &M::tie_embeddings, "the output matrix is the embedding"},
      {"initializer",
       &M::initializer,
       {{"normal", Initializer::normal},
        {"kaiming", Initializer::kaiming},
        {"xavier", Initializer::xavier},
        {"pythia", Initializer::pythia}},
       "first values of the projections"},
      {"initializer_range",
       &M::initializer_range,
       {0, 10},
       "standard deviation of the normal initialiser and of the embedding"},
  };
  return table;
}

}  // namespace motet
