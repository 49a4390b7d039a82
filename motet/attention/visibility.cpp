#include "motet/attention/visibility.h"

#include <algorithm>

namespace motet {
namespace {

Tensor column(const Tensor& t_B) { return t_B.to(at::kLong).view({-1, 1, 1}); }

// Positions of queries [t0,t1) as [1 or B, t, 1].
Tensor positions(const Problem& p, const QueryKeyBlock& block) {
  const Tensor t = at::arange(block.t0, block.t1, p.q_BTHD.options().dtype(at::kLong)).view({1, -1, 1});
  return p.table[kQueryStart].defined() ? column(p.table[kQueryStart]) + t : t + (p.S - p.T);
}

// A query whose position is no key's has no document and so sees nothing.
Tensor other_document(const Problem& p, const Tensor& position_BT1, const QueryKeyBlock& block) {
  const Tensor documents = p.table[kDocuments];
  const Tensor place_BT = position_BT1.squeeze(-1).expand({p.B, block.t1 - block.t0});
  const Tensor inside = (place_BT >= 0) & (place_BT < p.S);
  const Tensor own = documents.gather(1, place_BT.clamp(0, std::max<int64_t>(p.S - 1, 0))).unsqueeze(-1);
  return (own != documents.slice(1, block.s0, block.s1).unsqueeze(1)) | ~inside.unsqueeze(-1);
}

void merge(Tensor& all, const Tensor& more) { all = all.defined() ? all | more : more; }

}  // namespace

Tensor hidden(const Problem& p, const QueryKeyBlock& block) {
  Tensor hidden_BTS;
  const Tensor s = at::arange(block.s0, block.s1, p.q_BTHD.options().dtype(at::kLong)).view({1, 1, -1});
  if (p.table[kKeyBegin].defined()) merge(hidden_BTS, s < column(p.table[kKeyBegin]));
  if (p.table[kKeyEnd].defined()) merge(hidden_BTS, s >= column(p.table[kKeyEnd]));
  if (p.causal || p.table[kDocuments].defined()) {
    const Tensor position = positions(p, block);
    if (p.causal) merge(hidden_BTS, s > position);
    if (p.window > 0) merge(hidden_BTS, position - s >= p.window);
    if (p.table[kDocuments].defined()) merge(hidden_BTS, other_document(p, position, block));
  }
  Tensor hidden_BHTS = hidden_BTS.defined() ? hidden_BTS.unsqueeze(1) : Tensor();
  if (p.bias_BHTS.defined()) {
    const Tensor bias = p.bias_BHTS.slice(2, block.t0, block.t1).slice(3, block.s0, block.s1);
    merge(hidden_BHTS, at::isneginf(bias));
  }
  return hidden_BHTS;
}

QueryKeyBlock visible_keys(const Problem& p, int64_t t0, int64_t t1) {
  if (!p.causal) return {t0, t1, 0, p.S};
  int64_t first = p.S - p.T, last = first;  // position of query 0, over the sequences
  if (const Tensor& start = p.table[kQueryStart]; start.defined()) {
    if (!start.is_cpu() || !start.numel()) return {t0, t1, 0, p.S};
    first = start.min().item<int64_t>(), last = start.max().item<int64_t>();
  }
  const int64_t s1 = std::clamp<int64_t>(last + t1, 0, p.S);
  const int64_t s0 = p.window > 0 ? std::clamp<int64_t>(first + t0 - p.window + 1, 0, s1) : 0;
  return {t0, t1, s0, s1};
}

Problem without_padding(Problem p) {
  if (!p.table[kKeyBegin].defined() && !p.table[kKeyEnd].defined()) return p;
  const Tensor s = at::arange(p.S, p.q_BTHD.options().dtype(at::kLong)).unsqueeze(0);
  Tensor padding_BS;
  if (p.table[kKeyBegin].defined()) merge(padding_BS, s < p.table[kKeyBegin].to(at::kLong).unsqueeze(1));
  if (p.table[kKeyEnd].defined()) merge(padding_BS, s >= p.table[kKeyEnd].to(at::kLong).unsqueeze(1));
  const auto clear = [&](Tensor& t) {
    if (!t.defined()) return;
    std::vector<int64_t> shape(t.dim(), 1);
    shape[0] = padding_BS.size(0), shape[1] = p.S;
    t = t.masked_fill(padding_BS.view(shape), 0);
  };
  clear(p.k_BSGD);
  clear(p.v_BSGE);
  for (HeadMix* mix : {&p.pre, &p.post})
    for (int i = 0; i < kNumMixParts; ++i)
      if (kMixParts[i].side == Side::key) clear(mix->part[i]);
  return p;
}

}  // namespace motet
