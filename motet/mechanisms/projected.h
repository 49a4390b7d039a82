#pragma once
#include <optional>

#include "motet/mechanisms/mechanism.h"

namespace motet {

/// Sizes of the projections: stored heads and widths, and the heads of the softmax, which position biases have. Query,
/// softmax and output heads may differ (head mixes, pairs).
struct HeadSizes {
  int64_t query_heads = 0, softmax_heads = 0, key_heads = 0, value_heads = 0, output_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  const char* key_name = "k_proj";
};

/// What nearly all mechanisms share: q, k, v, o projections, QK norm, rotary embedding, windows, position biases,
/// an output gate.
class Projected : public Mechanism {
 public:
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;
  Attention attention(const Positions& queries, const Positions& keys, Pass) override;
  int64_t window(Pass) const override;
  const Rotary* rotary() const override { return rotary_.active() ? &rotary_ : nullptr; }
  Tensor finish(const Tensor& out_BTHE, const Tensor& x_BTC) override;
  std::vector<Diagnostic> diagnostics(const Tensor& x_BTC, const Queries&, const Keys&) override;
  void initialize_extras(const Streams&) override;
  bool decays(const std::string& name) const override;

 protected:
  Projected(const Setting&, const HeadSizes&);

  Tensor query_heads(const Tensor& x_BTC);                                  // [B,T,Hq,D], normed, not rotated
  std::pair<Tensor, Tensor> key_and_value_heads(const Tensor& memory_BSC);  // [B,S,G,D] normed, not rotated; [B,S,G,E]

  Setting setting_;
  HeadSizes sizes_;
  Rotary rotary_;
  Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  Linear gate_proj{nullptr};  // option output_gate: x [B,T,C] -> a gate for each head [B,T,Ho]
  Norm q_norm{nullptr}, k_norm{nullptr};
  Tensor relative_bias_NH;  // learned position bias, if that is chosen

 private:
  Tensor position_bias(const Positions& queries, const Positions& keys) const;

  bool local_;  // whether this layer has the window
};

/// Words of the option head_norm: an RMS norm over the width of each head's output, with a weight, without, or none.
const Words<std::optional<NormKind>>& head_norms();

/// num_heads queries over num_kv_heads keys and values, all of one width: plain multi-head attention.
HeadSizes plain_sizes(const Setting&);
/// head_dim, or hidden_size / num_heads; throws UsageError when that does not divide.
int64_t head_dim(const Setting&);
/// num_kv_heads, or num_heads; throws UsageError unless it divides num_heads.
int64_t num_kv_heads(const Setting&);
/// Throws UsageError "model.attention.NAME: ...".
[[noreturn]] void refuse_option(const char* name, const std::string& what);
Rotary rotary_of(const Setting&, int64_t key_dim);

}  // namespace motet
