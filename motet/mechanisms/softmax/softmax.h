#pragma once
#include "motet/mechanisms/projected.h"

namespace motet {

struct SoftmaxOptions {
  std::optional<NormKind> head_norm;  // none: no norm
  double head_norm_eps = 1e-5;
};

/// Plain softmax attention: MHA, grouped (GQA) and multi-query (MQA); the norm of differential attention's heads alone
/// is an option. README.md of this folder.
class SoftmaxAttention : public Projected {
 public:
  explicit SoftmaxAttention(const Setting&);
  Tensor finish(const Tensor& out_BTHE, const Tensor& x_BTC) override;

 private:
  Norm head_norm{nullptr};
};

MechanismEntry softmax_entry();

}  // namespace motet
