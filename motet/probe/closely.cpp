#include "motet/probe/closely.h"

#include <algorithm>
#include <limits>

#include "motet/probe/parts.h"

namespace motet {
namespace {

// The part of |U| at distances from begin on, below the next one's.
struct Distance {
  const char* name;
  int64_t begin;
};
constexpr Distance kDistances[] = {{"self", 0}, {"near", 1}, {"middle", 16}, {"far", 128}};

// Sums over rows and queries of the parts of a block of weights [B,H,t,S], whose first query stands at t0.
void add_parts(std::vector<Tensor>& sums, const Tensor& mixed_BHTS, int64_t t0) {
  const Tensor size = mixed_BHTS.abs();
  const Tensor part = (size / size.sum(-1, true).clamp_min(std::numeric_limits<float>::min())).to(at::kDouble);
  const auto place = at::TensorOptions(at::kLong).device(part.device());
  const Tensor distance_TS =
      (at::arange(t0, t0 + part.size(2), place).unsqueeze(1) - at::arange(part.size(3), place)).abs();
  for (size_t i = 0; i < sums.size(); ++i) {
    Tensor inside = distance_TS >= kDistances[i].begin;
    if (i + 1 < sums.size()) inside = inside & (distance_TS < kDistances[i + 1].begin);
    const Tensor own = (part * inside).sum({0, 2, 3});
    sums[i] = sums[i].defined() ? sums[i] + own : own;
  }
}

std::vector<HeadNumbers> divided(const std::vector<Diagnostic>& sums, double rows) {
  std::vector<HeadNumbers> out;
  for (const Diagnostic& sum : sums) {
    const Tensor here = (sum.values_H / rows).to(at::kCPU, at::kDouble).contiguous();
    out.push_back({sum.name, {here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel()}});
  }
  return out;
}

}  // namespace

void CloseProbe::add(const Tensor& ids, const Tensor& documents) {
  at::NoGradGuard no_grad;
  const Positions positions = ModelImpl::positions(ids, documents);
  const double rows = static_cast<double>(ids.size(0));
  layers_.resize(model_.blocks().size());
  each_call(model_, ids, positions, [&](const LayerCall& l) {
    Layer& layer = layers_[static_cast<size_t>(l.layer)];
    const int64_t T = ids.size(1), step = queries_of_block(l.call);
    std::vector<Tensor> parts(std::size(kDistances));
    for (int64_t t0 = 0; t0 < T; t0 += step) {
      const Call part = block(l.call, t0, std::min(t0 + step, T));
      const AttentionMaps maps = attention_maps(part.q, part.k, part.attention);
      const Tensor seen = maps.logits_BHTS.masked_select(~maps.hidden_BHTS);
      layer.logits.add(seen), logits_.add(seen);
      add_parts(parts, maps.mixed_BHTS, t0);
    }
    layer.states.add(l.output_BTC), states_.add(l.output_BTC);

    std::vector<Diagnostic> numbers;
    for (size_t i = 0; i < parts.size(); ++i)
      numbers.push_back({kDistances[i].name, parts[i] / (rows * static_cast<double>(T))});
    numbers.push_back(logit_rank(l.call));
    std::ranges::move(composition(l.call), std::back_inserter(numbers));
    if (const Rotary* rotary = l.mechanism.rotary())
      std::ranges::move(rotary_rises(l.call, *rotary, positions), std::back_inserter(numbers));
    for (Diagnostic& number : numbers) number.values_H = number.values_H.to(at::kCPU, at::kDouble) * rows;
    for (size_t i = 0; i < layer.numbers.size(); ++i)
      numbers[i].values_H = numbers[i].values_H + layer.numbers[i].values_H;
    layer.numbers = std::move(numbers);
  });
  rows_ += rows;
}

std::vector<CloseLook> CloseProbe::layers() const {
  std::vector<CloseLook> out;
  for (const Layer& layer : layers_)
    out.push_back({layer.logits.statistics(), layer.states.statistics(), divided(layer.numbers, rows_)});
  return out;
}

CloseLook CloseProbe::together() const {
  CloseLook out{logits_.statistics(), states_.statistics(), {}};
  for (const CloseLook& layer : layers())
    for (const HeadNumbers& number : layer.numbers) {
      auto found = std::ranges::find(out.numbers, number.name, &HeadNumbers::name);
      if (found == out.numbers.end()) found = out.numbers.insert(found, {number.name, {}});
      found->by_head.push_back(number.mean());
    }
  return out;
}

}  // namespace motet
