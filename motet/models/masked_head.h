#pragma once
#include "motet/layers/feed_forward.h"
#include "motet/layers/norms.h"
#include "motet/models/model_config.h"

namespace motet {

/// What BERT has between hidden states and the output matrix: norm(activation(dense h)), and a bias behind the matrix.
/// The matrix is the model's own, or its embedding. Source: arXiv:1810.04805.
class MaskedHeadImpl : public torch::nn::Module {
 public:
  explicit MaskedHeadImpl(const ModelConfig&, at::Device = at::kCPU);
  /// hidden [...,C] -> what the output matrix reads [...,E].
  Tensor forward(const Tensor& hidden);

  Tensor bias;  // [V]

 private:
  Activation activation_;
  Linear dense{nullptr};
  Norm norm{nullptr};
};
TORCH_MODULE(MaskedHead);

}  // namespace motet
