#include "motet/attention/matrices.h"

#include <algorithm>

namespace motet {
namespace {

// The parts of one side vary along dimension 1. `down`, kQueryDown or kKeyDown, is its first; the others follow it.
constexpr int kUp = kQueryUp - kQueryDown, kGate = kQueryGate - kQueryDown, kFull = kQueryFull - kQueryDown;
static_assert(kKeyUp == kKeyDown + kUp && kKeyGate == kKeyDown + kGate && kKeyFull == kKeyDown + kFull);

Tensor varying_matrix(const HeadMix& mix, int down, at::ScalarType type) {
  const auto part = [&](int which) { return mix.part[which].to(type); };
  Tensor sum;
  const auto add = [&](const Tensor& term) { sum = sum.defined() ? sum.add_(term) : term; };
  if (mix.has(down)) add(at::matmul(part(down).transpose(2, 3), part(down + kUp)));  // [B,.,N,R] [B,.,R,M]
  if (mix.has(down + kGate)) add(at::diag_embed(part(down + kGate)));
  if (mix.has(down + kFull)) add(sum.defined() ? part(down + kFull) : part(down + kFull).clone());
  return sum;
}

void varying_gradients(const HeadMix& mix, int down, const Tensor& gradient, std::span<const bool> wanted,
                       std::array<Tensor, kNumMixParts>& out) {
  const auto set = [&](int which, auto&& value) {
    if (mix.has(which) && wanted[which]) out[which] = value().to(mix.part[which].scalar_type());
  };
  const auto part = [&](int which) { return mix.part[which].to(gradient.scalar_type()); };
  set(down, [&] { return at::matmul(part(down + kUp), gradient.transpose(2, 3)); });  // [B,.,R,M] [B,.,M,N]
  set(down + kUp, [&] { return at::matmul(part(down), gradient); });                  // [B,.,R,N] [B,.,N,M]
  set(down + kGate, [&] { return gradient.diagonal(0, 2, 3).contiguous(); });
  set(down + kFull, [&] { return gradient; });
}

}  // namespace

MixMatrices mix_matrices(const HeadMix& mix, at::ScalarType type) {
  if (!mix.any_part()) return {};
  MixMatrices m;
  Tensor fixed = mix.has(kWeight) ? mix.part[kWeight].to(type) : Tensor();
  if (mix.identity) {
    const Tensor& some = *std::ranges::find_if(mix.part, [](const Tensor& t) { return t.defined(); });
    const Tensor one = at::eye(some.size(-1), some.options().dtype(type));
    fixed = fixed.defined() ? fixed + one : one;
  }
  m.query = varying_matrix(mix, kQueryDown, type);
  if (mix.on(Side::key)) m.key = varying_matrix(mix, kKeyDown, type).permute({0, 2, 3, 1}).contiguous();
  if (fixed.defined()) m.query = m.query.defined() ? m.query.add_(fixed) : fixed;
  return m;
}

MixMatrices zeros_like(const MixMatrices& m) {
  const auto zeros = [](const Tensor& t) { return t.defined() ? at::zeros_like(t) : Tensor(); };
  return {zeros(m.query), zeros(m.key)};
}

std::array<Tensor, kNumMixParts> part_gradients(const HeadMix& mix, const MixMatrices& gradient,
                                                std::span<const bool> wanted) {
  std::array<Tensor, kNumMixParts> out;
  if (mix.has(kWeight) && wanted[kWeight]) {
    const Tensor& g = gradient.query;
    out[kWeight] = (g.dim() == 4 ? g.sum(at::IntArrayRef{0, 1}) : g).to(mix.part[kWeight].scalar_type());
  }
  if (mix.on(Side::query)) varying_gradients(mix, kQueryDown, gradient.query, wanted, out);
  if (mix.on(Side::key)) varying_gradients(mix, kKeyDown, gradient.key.permute({0, 3, 1, 2}).contiguous(), wanted, out);
  return out;
}

}  // namespace motet
