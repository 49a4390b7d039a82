#include "motet/probe/calls.h"

#include <algorithm>

namespace motet {

// The definition holds about ten such tensors.
constexpr int64_t kBlockElements = 1 << 20;

Call block(const Call& whole, int64_t t0, int64_t t1) {
  Call part = whole;
  const int64_t keys = whole.attention.visibility.causal ? t1 : whole.k.k_BSGD.size(1);
  const auto queries = [&](Tensor& t) { t = t.defined() ? t.slice(1, t0, t1) : t; };
  queries(part.q.q_BTHD);
  for (QueryMix* mix : {&part.q.pre, &part.q.post})
    queries(mix->down_BTRH), queries(mix->up_BTRH), queries(mix->gate_BTH), queries(mix->full_BTHH);
  if (whole.q.lambda.defined() && whole.q.lambda.dim() == 3) queries(part.q.lambda);
  for_each_tensor(part.k, [&](Tensor& t) { t = t.defined() ? t.slice(1, 0, keys) : t; });
  Visibility& sees = part.attention.visibility;
  sees.query_start_B = at::full({part.q.q_BTHD.size(0)}, t0, part.q.q_BTHD.options().dtype(at::kLong));
  if (sees.documents_BS.defined()) sees.documents_BS = sees.documents_BS.slice(1, 0, keys);
  if (sees.bias_BHTS.defined()) sees.bias_BHTS = sees.bias_BHTS.slice(2, t0, t1).slice(3, 0, keys);
  return part;
}

int64_t queries_of_block(const Call& call) {
  const Tensor& q = call.q.q_BTHD;
  const int64_t T = q.size(1), row = q.size(0) * q.size(2) * T;
  return std::clamp<int64_t>(kBlockElements / row, 1, T);
}

void each_call(ModelImpl& model, const Tensor& ids, const Positions& at,
               const std::function<void(const LayerCall&)>& look) {
  Call call;
  std::vector<Diagnostic> own;
  const auto attend = [&](int64_t, BlockImpl& block, const Tensor& normed) {
    Mechanism& mechanism = *block.self_attn;
    call = {mechanism.queries(normed, at), mechanism.keys(normed, at), mechanism.attention(at, at, Pass::whole)};
    own = mechanism.diagnostics(normed, call.q, call.k);
    return mechanism.finish(composed_attention(call.q, call.k, call.attention).out_BTHE, normed);
  };
  model.walk(model.embedded(ids, at), attend, [&](int64_t layer, const Tensor& output) {
    look({layer, *model.blocks()[static_cast<size_t>(layer)]->self_attn, call, own, output});
  });
}

}  // namespace motet
