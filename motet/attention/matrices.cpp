#include "motet/attention/matrices.h"

namespace motet {
namespace {

// The four parts of one side that vary along dimension 1: down, up, gate, full.
constexpr int kFirst[] = {kQueryDown, kKeyDown};

Tensor varying_matrix(const HeadMix& mix, int first, at::ScalarType type) {
  const auto part = [&](int i) { return mix.part[first + i].to(type); };
  Tensor sum;
  const auto add = [&](const Tensor& term) { sum = sum.defined() ? sum.add_(term) : term; };
  if (mix.has(first)) add(at::matmul(part(0).transpose(2, 3), part(1)));  // [B,.,N,R] [B,.,R,M]
  if (mix.has(first + 2)) add(at::diag_embed(part(2)));
  if (mix.has(first + 3)) add(sum.defined() ? part(3) : part(3).clone());
  return sum;
}

void varying_gradients(const HeadMix& mix, int first, const Tensor& gradient, std::span<const bool> wanted,
                       std::array<Tensor, kNumMixParts>& out) {
  const auto set = [&](int i, auto&& value) {
    if (mix.has(first + i) && wanted[first + i]) out[first + i] = value().to(mix.part[first + i].scalar_type());
  };
  const auto part = [&](int i) { return mix.part[first + i].to(gradient.scalar_type()); };
  set(0, [&] { return at::matmul(part(1), gradient.transpose(2, 3)); });  // [B,.,R,M] [B,.,M,N]
  set(1, [&] { return at::matmul(part(0), gradient); });                  // [B,.,R,N] [B,.,N,M]
  set(2, [&] { return gradient.diagonal(0, 2, 3).contiguous(); });
  set(3, [&] { return gradient; });
}

}  // namespace

MixMatrices mix_matrices(const HeadMix& mix, at::ScalarType type) {
  if (!mix.any_part()) return {};
  MixMatrices m;
  Tensor fixed = mix.has(kWeight) ? mix.part[kWeight].to(type) : Tensor();
  if (mix.identity) {
    const int64_t heads = [&] {
      for (int i = 0; i < kNumMixParts; ++i)
        if (mix.has(i)) return mix.part[i].size(-1);
      return int64_t{0};
    }();
    for (const Tensor& t : mix.part)
      if (t.defined() && !fixed.defined()) fixed = at::zeros({heads, heads}, t.options().dtype(type));
    fixed = fixed + at::eye(heads, fixed.options());
  }
  m.query = varying_matrix(mix, kFirst[0], type);
  if (mix.on(Side::key)) m.key = varying_matrix(mix, kFirst[1], type).permute({0, 2, 3, 1}).contiguous();
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
  if (mix.on(Side::query)) varying_gradients(mix, kFirst[0], gradient.query, wanted, out);
  if (mix.on(Side::key))
    varying_gradients(mix, kFirst[1], gradient.key.permute({0, 3, 1, 2}).contiguous(), wanted, out);
  return out;
}

}  // namespace motet
