#pragma once
#include "motet/attention/problem.h"

namespace motet {

/// The specification: every intermediate and the result, differentiable by autograd. T x S memory per head.
AttentionMaps definition(const Problem&, const ChangeLogits& = {});

/// out[m] = the head mix of in [B,N,T,S], term by term as README.md writes it; parts are cast to in's dtype.
Tensor mixed_heads(const Tensor& in_BHTS, const HeadMix&);

/// out[i] = in[2i] - lambda[i] in[2i+1]; lambda a number, [Ho] or [B,T,Ho].
Tensor subtracted_pairs(const Tensor& in_BHTS, const Tensor& lambda);

}  // namespace motet
