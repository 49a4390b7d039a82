#pragma once
#include "motet/layers/linear.h"
#include "motet/layers/norms.h"
#include "motet/layers/rotary.h"
#include "motet/layers/streams.h"
#include "motet/models/model_config.h"

namespace motet {

/// What the first layer reads: the token's embedding, with the rows of its position and its type where the model has
/// such tables, a norm of the sum, and the matrix that makes hidden_size of embedding_size.
class Embedding {
 public:
  Embedding() = default;
  /// Registers its layers in `trunk` as embed_tokens, embed_positions, embed_types, embed_norm and embed_projection.
  Embedding(const ModelConfig&, torch::nn::Module& trunk, at::Device);

  /// ids [B,T] int64 -> [B,T,C]; positions [T] or [B,T] below the context, types [B,T] int64 or undefined for all 0.
  Tensor operator()(const Tensor& ids_BT, const Positions&, const Tensor& types_BT = {});

  /// Draws the tables, each from its own stream. The matrix is drawn with the other matrices.
  void initialize(const Streams&, double deviation);
  const Linear& tokens() const { return tokens_; }

  /// Whether a parameter of this name is a table, of which a token reads a row: no matrix product, no weight decay.
  static bool is_table(const std::string& parameter);

 private:
  std::vector<std::pair<std::string, Linear>> tables() const;

  int64_t first_position_ = 0;
  Linear tokens_{nullptr}, positions_{nullptr}, types_{nullptr}, projection_{nullptr};
  Norm norm_{nullptr};
};

}  // namespace motet
