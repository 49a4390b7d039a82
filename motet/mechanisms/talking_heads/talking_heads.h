#pragma once
#include <optional>

#include "motet/mechanisms/coca/collinear.h"
#include "motet/mechanisms/projected.h"

namespace motet {

struct TalkingHeadsOptions {
  enum class Start { identity, random };
  enum class Scale { by_width, none };
  int64_t score_heads = 0, softmax_heads = 0, value_heads = 0;  // 0: num_heads
  int64_t key_dim = 0, value_dim = 0;                           // 0: head_dim
  Places mixes;
  bool fixed = true;  // static maps
  Start start = Start::identity;
  Sides dynamic = {false, false};
  std::optional<Sides> dynamic_logits, dynamic_weights;  // none: as dynamic
  double dynamic_std = 0.01;
  bool residual = false;
  Scale qk_scale = Scale::by_width;
  std::optional<CocaForm> collinear;  // none: queries and keys as they are
};

/// Talking-heads attention: linear maps over heads before and after the softmax, with three independent head counts,
/// static and dynamic. README.md of this folder.
class TalkingHeads : public Projected {
 public:
  explicit TalkingHeads(const Setting&);
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Keys compact_keys(const Tensor& memory_BSC, const Positions&) override;
  Keys restore(const Keys& compact, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;
  Attention attention(const Positions& queries, const Positions& keys, Pass) override;
  std::vector<LearnedMap> learned() override;
  void initialize_extras(const Streams&) override;
  bool decays(const std::string& name) const override;

 private:
  Tensor full(const Tensor& map_CNM, const Tensor& x_BTC) const;

  TalkingHeadsOptions options_;
  std::optional<Collinear> collinear_;
  Tensor logits_mix_NM, weights_mix_NM;                                         // static, P_l and P_w
  Tensor query_logits_CNM, key_logits_CNM, query_weights_CNM, key_weights_CNM;  // dynamic, P_Xl, P_Ml, P_Xw, P_Mw
};

MechanismEntry talking_heads_entry();

}  // namespace motet
