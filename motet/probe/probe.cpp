#include "motet/probe/probe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "motet/probe/calls.h"

namespace motet {
namespace {

// A sum over rows and queries of each head, and how many count.
struct Mean {
  Tensor sum_H, count_H;
  void add(const Tensor& values_BHT, const Tensor& counts_BHT) {
    const Tensor sum = values_BHT.masked_fill(~counts_BHT, 0).to(at::kDouble).sum(at::IntArrayRef{0, 2}),
                 count = counts_BHT.to(at::kDouble).sum(at::IntArrayRef{0, 2});
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
  const int64_t T = call.q.q_BTHD.size(1), step = at_once > 0 ? at_once : queries_of_block(call);
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

std::vector<LayerProbe> probe(ModelImpl& model, const Tensor& ids, const Tensor& documents, int64_t queries_at_once) {
  at::NoGradGuard no_grad;
  std::vector<LayerProbe> layers;
  each_call(model, ids, ModelImpl::positions(ids, documents),
            [&](const LayerCall& l) { layers.push_back(probed(l.call, l.own, queries_at_once)); });
  return layers;
}

std::vector<std::vector<double>> attention_shares(ModelImpl& model, const Tensor& ids, const Tensor& kinds,
                                                  int64_t count) {
  at::NoGradGuard no_grad;
  const int64_t T = ids.size(1);
  std::vector<std::vector<double>> layers;
  each_call(model, ids, ModelImpl::positions(ids, {}), [&](const LayerCall& layer) {
    const Call last = block(layer.call, T - 1, T);
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
