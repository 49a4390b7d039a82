#include "motet/generate/sampler.h"

#include <map>

#include "motet/core/error.h"

namespace motet {
namespace {

// The tokens whose surprise is nearest to the entropy, until they sum to `p`: true where they stand.
Tensor typical(Tensor weights, double p) {
  weights = weights / weights.sum();
  const Tensor surprise = -weights.clamp_min(1e-300).log();
  const Tensor far = at::where(weights > 0, (surprise - (weights * surprise).sum()).abs(), 1e300);
  const Tensor order = std::get<1>(far.sort(/*stable=*/true, 0, /*descending=*/false));
  const Tensor nearest = weights.index({order});
  const Tensor keep = (nearest.cumsum(0) - nearest) < p;
  return at::zeros_like(keep).scatter_(0, order, keep);
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(options), random_(at::detail::createCPUGenerator(options.seed)) {}

void Sampler::penalise(Tensor& logits, std::span<const int32_t> recent) const {
  if (options_.repeat_penalty == 1 && options_.frequency_penalty == 0 && options_.presence_penalty == 0) return;
  auto values = logits.accessor<double, 1>();
  std::map<int32_t, int64_t> times;
  for (const int32_t id : recent) ++times[id];
  for (const auto& [id, count] : times) {
    double& x = values[id];
    x = x > 0 ? x / options_.repeat_penalty : x * options_.repeat_penalty;
    x -= static_cast<double>(count) * options_.frequency_penalty + options_.presence_penalty;
  }
}

int32_t Sampler::next(const Tensor& given, std::span<const int32_t> recent) {
  Tensor logits = given.to(at::kCPU, at::kDouble).contiguous().clone();
  if (!logits.isfinite().any().item<bool>() || logits.isnan().any().item<bool>())
    fail("generate: the model's logits are not finite");
  penalise(logits, recent);
  if (options_.temperature == 0) return logits.argmax().item<int32_t>();
  auto [sorted, order] = logits.sort(0, true);
  if (options_.top_k > 0) sorted = sorted.slice(0, 0, std::min(options_.top_k, sorted.size(0)));
  const Tensor likely = at::softmax(sorted, 0);
  Tensor keep = (likely.cumsum(0) - likely) < options_.top_p;  // the token that reaches top_p stays
  keep = keep & (likely >= options_.min_p * likely[0]);
  keep[0] = true;
  if (options_.typical_p < 1) keep = keep & typical(at::where(keep, likely, 0), options_.typical_p);
  const Tensor weights = at::softmax(sorted / options_.temperature, 0) * keep;
  return order[at::multinomial(weights, 1, false, random_).item<int64_t>()].item<int32_t>();
}

}  // namespace motet
