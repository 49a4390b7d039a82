#pragma once
#include "motet/attention/problem.h"

// A head mix folded into one matrix per query and one per key: what the blocked path multiplies by.
namespace motet {

/// query: [B,T,N,M] with identity, weight, low rank, gate and full part of the query side; or [N,M] when no part
/// depends on the query; undefined when there is none. key: [B,N,M,S] with the key-side parts, the key last because
/// products over it run along rows of [.., T, S]; undefined without them. Both undefined: no mix.
struct MixMatrices {
  Tensor query, key;
  bool none() const { return !query.defined() && !key.defined(); }
};
MixMatrices mix_matrices(const HeadMix&, at::ScalarType);

/// Zero-filled gradients in the shapes of the matrices.
MixMatrices zeros_like(const MixMatrices&);

/// Gradients of the parts from those of the matrices, in the order of kMixParts, in each part's dtype; only of
/// `wanted`.
std::array<Tensor, kNumMixParts> part_gradients(const HeadMix&, const MixMatrices& gradient,
                                                std::span<const bool> wanted);

}  // namespace motet
