#pragma once
#include "motet/mechanisms/projected.h"

namespace motet {

/// Talking-heads attention: linear maps over heads before and after the softmax, with three independent head counts,
/// static and dynamic. README.md of this folder.
class TalkingHeads : public Projected {
 public:
  explicit TalkingHeads(const Setting&);
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;
  Attention attention(const Positions& queries, const Positions& keys) override;
  std::vector<LearnedMap> learned() override;
  void initialize_extras(const Streams&) override;
  bool decays(const std::string& name) const override;

 private:
  Tensor full(const Tensor& map_CNM, const Tensor& x_BTC) const;

  Tensor logits_mix_NM, weights_mix_NM;                                         // static, P_l and P_w
  Tensor query_logits_CNM, key_logits_CNM, query_weights_CNM, key_weights_CNM;  // dynamic, P_Xl, P_Ml, P_Xw, P_Mw
};

MechanismEntry talking_heads_entry();

}  // namespace motet
