#include "motet/probe/probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace motet {
namespace {

// Elements of one [B,H,t,S] tensor of a block; the definition holds about ten of them.
constexpr int64_t kBlockElements = 1 << 20;

// Arguments of the operator in self-attention.
struct Call {
  Queries q;
  Keys k;
  Attention attention;
};

// Queries [t0,t1) and the keys that they may see.
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

// A sum over rows and queries of each head, and how many count.
struct Mean {
  Tensor sum_H, count_H;
  void add(const Tensor& values_BHT, const Tensor& counts_BHT) {
    const Tensor sum = values_BHT.masked_fill(~counts_BHT, 0).to(at::kDouble).sum({0, 2}),
                 count = counts_BHT.to(at::kDouble).sum({0, 2});
    sum_H = sum_H.defined() ? sum_H + sum : sum;
    count_H = count_H.defined() ? count_H + count : count;
  }
  Tensor values() const { return sum_H / count_H; }
};

// Of weights that are not negative and sum to 1 where a query sees anything.
struct WeightMeans {
  Mean entropy, first_token;
  void add(const Tensor& weights_BHTS, const Tensor& hidden_BHTS, int64_t t0) {
    const Tensor seen_BHTS = ~hidden_BHTS;
    entropy.add(-at::xlogy(weights_BHTS, weights_BHTS).sum(-1), seen_BHTS.any(-1));
    const int64_t behind = t0 == 0 ? 1 : 0;  // query 0 is the first token itself
    first_token.add(weights_BHTS.select(3, 0).slice(2, behind), seen_BHTS.select(3, 0).slice(2, behind));
  }
};

std::vector<double> on_the_host(const Tensor& values_H) {
  const Tensor here = values_H.to(at::kCPU, at::kDouble).contiguous();
  return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel()};
}

LayerProbe probed(const Call& call, const std::vector<Diagnostic>& own, int64_t at_once) {
  const Tensor& q = call.q.q_BTHD;
  const int64_t T = q.size(1), row = q.size(0) * q.size(2) * T,
                step = at_once > 0 ? at_once : std::clamp<int64_t>(kBlockElements / row, 1, T);
  Tensor largest;
  WeightMeans weights, mixed;
  for (int64_t t0 = 0; t0 < T; t0 += step) {
    const Call part = block(call, t0, std::min(t0 + step, T));
    const AttentionMaps maps = attention_maps(part.q, part.k, part.attention);
    const Tensor top = maps.logits_BHTS.masked_fill(maps.hidden_BHTS, -std::numeric_limits<double>::infinity()).max();
    largest = largest.defined() ? at::maximum(largest, top) : top;
    weights.add(maps.weights_BHTS, maps.hidden_BHTS, t0);
    if (!maps.mixed_BHTS.is_same(maps.weights_BHTS)) {
      const Tensor size = maps.mixed_BHTS.abs(), hidden = maps.hidden_BHTS.all(1, true);  // from every softmax head
      mixed.add(size / size.sum(-1, true).clamp_min(std::numeric_limits<float>::min()), hidden.expand_as(size), t0);
    }
  }
  LayerProbe probe{.largest_logit = largest.item<double>(), .numbers = {}};
  const auto add = [&](const std::string& name, const Tensor& values) {
    probe.numbers.push_back({name, on_the_host(values)});
  };
  add("entropy", weights.entropy.values()), add("first_token", weights.first_token.values());
  if (mixed.entropy.sum_H.defined())
    add("mixed_entropy", mixed.entropy.values()), add("mixed_first_token", mixed.first_token.values());
  for (const Diagnostic& number : own) add(number.name, number.values_H);
  return probe;
}

}  // namespace

double HeadNumbers::mean() const {
  double sum = 0;
  for (const double number : by_head) sum += number;
  return sum / static_cast<double>(by_head.size());
}

namespace {

// Runs the model and shows the operator's arguments of each layer to `look`, behind the layer, for its precision is not
// that of the definition.
void each_call(ModelImpl& model, const Tensor& ids, const Positions& at,
               const std::function<void(const Call&, const std::vector<Diagnostic>&)>& look) {
  Call call;
  std::vector<Diagnostic> own;
  const auto attend = [&](int64_t, BlockImpl& block, const Tensor& normed) {
    Mechanism& mechanism = *block.self_attn;
    call = {mechanism.queries(normed, at), mechanism.keys(normed, at), mechanism.attention(at, at, Pass::whole)};
    own = mechanism.diagnostics(normed, call.q, call.k);
    return mechanism.finish(composed_attention(call.q, call.k, call.attention).out_BTHE, normed);
  };
  model.walk(model.embedded(ids, at), attend, [&](int64_t, const Tensor&) { look(call, own); });
}

}  // namespace

std::vector<LayerProbe> probe(ModelImpl& model, const Tensor& ids, const Tensor& documents, int64_t queries_at_once) {
  at::NoGradGuard no_grad;
  std::vector<LayerProbe> layers;
  each_call(model, ids, ModelImpl::positions(ids, documents),
            [&](const Call& call, const std::vector<Diagnostic>& own) {
              layers.push_back(probed(call, own, queries_at_once));
            });
  return layers;
}

std::vector<std::vector<double>> attention_shares(ModelImpl& model, const Tensor& ids, const Tensor& kinds,
                                                  int64_t count) {
  at::NoGradGuard no_grad;
  const int64_t T = ids.size(1);
  std::vector<std::vector<double>> layers;
  each_call(model, ids, ModelImpl::positions(ids, {}), [&](const Call& call, const std::vector<Diagnostic>&) {
    const Call last = block(call, T - 1, T);
    const Tensor size_BHS = attention_maps(last.q, last.k, last.attention).mixed_BHTS.abs().squeeze(2);
    const Tensor share_BS =
        (size_BHS / size_BHS.sum(-1, true).clamp_min(std::numeric_limits<float>::min())).mean(1).to(at::kDouble);
    layers.emplace_back();
    for (int64_t kind = 0; kind < count; ++kind)
      layers.back().push_back((share_BS * (kinds == kind)).sum(-1).mean().item<double>());
  });
  return layers;
}

}  // namespace motet
