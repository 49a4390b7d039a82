#include "motet/generate/sampler.h"

#include <set>

#include "motet/core/error.h"

namespace motet {

Sampler::Sampler(SamplerOptions options) : options_(options), random_(at::detail::createCPUGenerator(options.seed)) {}

int32_t Sampler::next(const Tensor& given, std::span<const int32_t> recent) {
  Tensor logits = given.to(at::kCPU, at::kDouble).contiguous().clone();
  if (!logits.isfinite().any().item<bool>() || logits.isnan().any().item<bool>())
    fail("generate: the model's logits are not finite");
  if (options_.repeat_penalty != 1) {
    auto values = logits.accessor<double, 1>();
    for (int32_t id : std::set<int32_t>(recent.begin(), recent.end()))
      values[id] = values[id] > 0 ? values[id] / options_.repeat_penalty : values[id] * options_.repeat_penalty;
  }
  if (options_.temperature == 0) return logits.argmax().item<int32_t>();
  auto [sorted, order] = logits.sort(0, true);
  if (options_.top_k > 0) sorted = sorted.slice(0, 0, std::min(options_.top_k, sorted.size(0)));
  const Tensor likely = at::softmax(sorted, 0);
  Tensor keep = (likely.cumsum(0) - likely) < options_.top_p;  // the token that reaches top_p stays
  keep = keep & (likely >= options_.min_p * likely[0]);
  keep[0] = true;
  const Tensor weights = at::softmax(sorted / options_.temperature, 0) * keep;
  return order[at::multinomial(weights, 1, false, random_).item<int64_t>()].item<int32_t>();
}

}  // namespace motet
