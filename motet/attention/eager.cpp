#include "motet/attention/eager.h"

#include "motet/attention/definition.h"
#include "motet/attention/heads.h"

namespace motet {

Tensor eager(const Problem& p) {
  const Tensor k_BSHD = spread_heads(p.k_BSGD, p.key_of), v_BSHE = spread_heads(p.v_BSGE, p.value_of);
  Tensor logits_BHTS = mixed_heads(p.scale * at::einsum("bthd,bshd->bhts", {p.q_BTHD, k_BSHD}), p.pre);
  if (p.causal) {
    const Tensor all = at::ones({p.T, p.S}, p.q_BTHD.options().dtype(at::kBool));
    Tensor hidden = all.triu(p.S - p.T + 1);
    if (p.window > 0) hidden = hidden.logical_or(all.tril(p.S - p.T - p.window));
    logits_BHTS = logits_BHTS.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  const Tensor weights_BHTS = at::softmax(logits_BHTS, -1, p.accumulate()).to(p.q_BTHD.scalar_type());
  return at::einsum(
      "bhts,bshe->bthe",
      {p.lambda.defined() ? subtracted_pairs(weights_BHTS, p.lambda) : mixed_heads(weights_BHTS, p.post), v_BSHE});
}

}  // namespace motet
