// The specification: composed attention as attention.h defines it, unblocked, differentiated by autograd.
// Slow on purpose: every kernel is tested against it. It also yields every intermediate.
#include "motet/attention/definition.h"

#include "motet/attention/heads.h"
#include "motet/attention/visibility.h"

namespace motet {

Tensor mixed_heads(const Tensor& in_BHTS, const HeadMix& mix) {
  if (!mix.any_part()) return in_BHTS;  // nothing set passes the input through
  const auto part = [&](int i) { return mix.part[i].to(in_BHTS.scalar_type()); };
  Tensor out;
  const auto add = [&](const Tensor& term) { out = out.defined() ? out + term : term; };
  if (mix.identity) add(in_BHTS);
  if (mix.has(kWeight)) add(at::einsum("bnts,nm->bmts", {in_BHTS, part(kWeight)}));
  if (mix.has(kQueryDown)) {
    const Tensor low_BRTS = at::einsum("bnts,btrn->brts", {in_BHTS, part(kQueryDown)});
    add(at::einsum("brts,btrm->bmts", {low_BRTS, part(kQueryUp)}));
  }
  if (mix.has(kKeyDown)) {
    const Tensor low_BRTS = at::einsum("bnts,bsrn->brts", {in_BHTS, part(kKeyDown)});
    add(at::einsum("brts,bsrm->bmts", {low_BRTS, part(kKeyUp)}));
  }
  if (mix.has(kQueryGate)) add(in_BHTS * part(kQueryGate).permute({0, 2, 1}).unsqueeze(3));
  if (mix.has(kKeyGate)) add(in_BHTS * part(kKeyGate).permute({0, 2, 1}).unsqueeze(2));
  if (mix.has(kQueryFull)) add(at::einsum("bnts,btnm->bmts", {in_BHTS, part(kQueryFull)}));
  if (mix.has(kKeyFull)) add(at::einsum("bnts,bsnm->bmts", {in_BHTS, part(kKeyFull)}));
  return out;
}

Tensor subtracted_pairs(const Tensor& in_BHTS, const Tensor& lambda) {
  const Tensor l = lambda.to(in_BHTS.scalar_type());
  const Tensor l_BHT1 = l.dim() == 3 ? l.permute({0, 2, 1}).unsqueeze(3) : l.view({1, -1, 1, 1});
  return in_BHTS.slice(1, 0, {}, 2) - l_BHT1 * in_BHTS.slice(1, 1, {}, 2);
}

AttentionMaps definition(const Problem& given, const ChangeLogits& change) {
  const Problem p = without_padding(given);
  const auto wide = p.accumulate();
  const Tensor k_BSHD = spread_heads(p.k_BSGD.to(wide), p.key_of);
  const Tensor v_BSHE = spread_heads(p.v_BSGE.to(wide), p.value_of);

  AttentionMaps maps;
  maps.scores_BHTS = p.scale * at::einsum("bthd,bshd->bhts", {p.q_BTHD.to(wide), k_BSHD});
  maps.logits_BHTS = mixed_heads(maps.scores_BHTS, p.pre);
  const Tensor hidden_BHTS = hidden(p, {0, p.T, 0, p.S});
  const Tensor unseen =
      hidden_BHTS.defined() ? hidden_BHTS : at::zeros({1, 1, 1, 1}, p.q_BTHD.options().dtype(at::kBool));
  maps.hidden_BHTS = unseen.expand({p.B, p.softmax_heads, p.T, p.S});
  if (p.bias_BHTS.defined()) maps.logits_BHTS = maps.logits_BHTS + p.bias_BHTS.to(wide);
  if (change) maps.logits_BHTS = change(maps.logits_BHTS, maps.hidden_BHTS);

  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor seen_logits = maps.logits_BHTS.masked_fill(unseen, -infinity);
  maps.lse_BHT = at::logsumexp(seen_logits.detach(), -1);
  // A row that sees nothing would be softmax of -inf alone, NaN: it is made finite first and hidden after.
  const Tensor sees_nothing = unseen.all(-1, true);
  maps.weights_BHTS = at::softmax(seen_logits.masked_fill(sees_nothing, 0), -1).masked_fill(unseen, 0);
  maps.mixed_BHTS =
      p.lambda.defined() ? subtracted_pairs(maps.weights_BHTS, p.lambda) : mixed_heads(maps.weights_BHTS, p.post);
  maps.out_BTHE = at::einsum("bhts,bshe->bthe", {maps.mixed_BHTS, v_BSHE}).to(p.q_BTHD.scalar_type());
  return maps;
}

}  // namespace motet
