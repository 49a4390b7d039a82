#pragma once
#include <functional>

#include "motet/layers/feed_forward.h"
#include "motet/mechanisms/mechanism.h"
#include "motet/models/autocast.h"
#include "motet/models/embedding.h"
#include "motet/models/masked_head.h"
#include "motet/models/model_config.h"
#include "motet/ops/dropout.h"

namespace motet {

/// One layer. Pre-norm: sequential residual (h = x + att(norm x), h + ffn(norm h)) or parallel (x + att(norm x) +
/// ffn(norm' x)); post-norm: h = norm(x + att x), norm'(h + ffn h). RMS norm and SwiGLU (LLaMA), or layer norm, GELU
/// and biases (GPT-NeoX, BERT). Memory undefined: self-attention.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const ModelConfig&, int64_t layer, at::Device = at::kCPU);
  Tensor forward(const Tensor& x_BTC, const Positions& at, const Tensor& memory_BSC = {},
                 const Positions& memory_at = {});
  /// What the attention reads of the layer's input: input_layernorm(x), or x itself in post-norm.
  Tensor normed(const Tensor& x_BTC);
  /// The layer's output from its input and what the attention made of normed(x). Dropout is of what the attention and
  /// the feed-forward add.
  Tensor after(const Tensor& x_BTC, const Tensor& attended_BTC, const Dropout& = {});

  std::shared_ptr<Mechanism> self_attn;
  /// The first of pre-norm, the last of post-norm.
  Norm input_layernorm{nullptr}, post_attention_layernorm{nullptr}, post_feedforward_layernorm{nullptr};

 private:
  bool parallel_;
  FeedForward mlp{nullptr};
};
TORCH_MODULE(Block);

/// Token ids to logits. Tensor names are those of Hugging Face's llama, a mechanism's extras under self_attn.
class ModelImpl : public torch::nn::Module {
 public:
  /// On the device `meta` it has shapes alone and takes no memory, for plans.
  explicit ModelImpl(ModelConfig, at::Device = at::kCPU);

  /// ids [B,T] int64 -> logits [B,T,V]. With documents [B,T] int64 each document is computed as if it were alone: it
  /// sees itself only and its positions begin at 0. Throws UsageError when T exceeds the context.
  /// `types_BT` [B,T] int64 below token_types; undefined: all 0.
  Tensor forward(const Tensor& ids_BT, const Tensor& documents_BT = {}, const Tensor& types_BT = {});
  /// ids [B,T] -> hidden states after the final norm [B,T,C]. `length` is what dynamic position scaling is based on:
  /// the planned total of a request, so that its base stays one; 0: T, as in training and scoring. Throws UsageError
  /// when T exceeds the context or the length.
  Tensor hidden(const Tensor& ids_BT, int64_t length = 0);
  Tensor hidden(const Tensor& ids_BT, const Positions&, const Dropout& = {}, const Tensor& types_BT = {});
  /// decoded(before_decoding(hidden)): what the head makes [B,T,E] of hidden states, and its output matrix's logits.
  Tensor logits(const Tensor& hidden_BTC);
  Tensor before_decoding(const Tensor& hidden_BTC);
  Tensor decoded(const Tensor& transformed_BTE);
  /// The embedding and the output of each layer, [B,T,C] each; normed(the last) is hidden(ids).
  std::vector<Tensor> states(const Tensor& ids_BT, const Positions&);
  /// What the first layer reads of tokens at their positions. Throws UsageError when they are more than the context.
  Tensor embedded(const Tensor& ids_BT, const Positions&, const Tensor& types_BT = {});
  /// Behind the last layer: the final norm of pre-norm.
  Tensor normed(const Tensor& x_BTC) { return norm ? norm(x_BTC) : x_BTC; }

  /// What the attention of a layer makes of its normed input [B,T,C].
  using Attend = std::function<Tensor(int64_t layer, BlockImpl&, const Tensor& normed_BTC)>;
  /// Sees the output of a layer [B,T,C].
  using OnLayer = std::function<void(int64_t layer, const Tensor& output_BTC)>;
  /// The one walk over the layers, in the model's precision: x [B,T,C] as embedded() gives it, to what normed() takes.
  /// Under set_recompute and gradients a copy of `attend` is called once more by the backward pass.
  Tensor walk(Tensor x_BTC, const Attend&, const OnLayer& = {}, const Dropout& = {});
  /// The walk with the mechanism's own attention among the tokens at these positions.
  Tensor walk(Tensor x_BTC, const Positions&, const OnLayer& = {}, const Dropout& = {});
  /// Where tokens stand: documents [B,T] int64 each from 0 on; undefined: one text.
  static Positions positions(const Tensor& ids_BT, const Tensor& documents_BT = {});

  /// Draws all parameters anew, each from its own stream (layers/streams.h).
  void initialize(uint64_t seed);
  /// Whether weight decay applies to a parameter: matrices decay; vectors, the tables of the embedding and what a
  /// mechanism excepts do not.
  bool decays(const std::string& name, const Tensor& parameter) const;

  /// The normed input of each layer's attention, for pictures.
  std::vector<Tensor> attention_inputs(const Tensor& ids_BT);
  /// Where the first non-finite number appears: "embedding", "layer 3", "output", or "" when all are finite.
  std::string first_non_finite(const Tensor& ids_BT, const Tensor& documents_BT = {});

  /// Makes the model ready for inference: matrices of linear layers, of the embedding and of DCMHA's generator in this
  /// type, on the CPU in one piece of memory, and what mechanisms lay out for few rows. From then on nothing writes the
  /// model, so that threads may share it, until train() or to() drops that form again (layers/preparable.h). Matrices
  /// that are kept in this type already stay as they are. Throws Error unless the parameters are float32.
  void prepare(WeightType = WeightType::float32);
  /// The same of the matrices alone: what is computed is otherwise what evaluation in training computes, to the bit.
  void keep_matrices(WeightType);
  /// Whether forward(), hidden(), states() and logits() compute under autocast to bfloat16 or float16, in training and
  /// evaluation alike.
  void set_autocast(std::optional<at::ScalarType> type) { config_.autocast = type; }
  /// Of the products in attention and, without gradients, in linear layers. Throws UsageError, behind `what`, where
  /// they cannot have it (attention.h).
  void set_precision(Precision, const std::string& what);
  /// Whether a pass with gradients keeps each layer's input alone, and the backward pass computes the layer again.
  void set_recompute(bool on) { recompute_ = on; }

  const ModelConfig& config() const { return config_; }
  at::Device device() const { return embedding_.tokens()->weight.device(); }  // of parameters, inputs and results
  at::ScalarType dtype() const { return embedding_.tokens()->weight.scalar_type(); }  // of parameters
  const std::vector<Block>& blocks() const { return blocks_; }  // num_layers; those that share parameters are one
  /// Of decoded(): the weight [V,E] and the bias [V], which may be undefined.
  const Tensor& output_weight() const { return decoder()->weight; }
  Tensor output_bias() const { return masked_head ? masked_head->bias : Tensor(); }
  int64_t num_parameters() const;
  /// Of matrices that lie in mapped files, memory that the system counts as free.
  int64_t mapped_bytes() const;

 private:
  const Linear& decoder() const { return lm_head ? lm_head : embedding_.tokens(); }

  ModelConfig config_;
  bool recompute_ = false;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Norm norm{nullptr};
  MaskedHead masked_head{nullptr};
  Linear lm_head{nullptr};
};
TORCH_MODULE(Model);

}  // namespace motet
