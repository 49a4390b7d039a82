#pragma once
#include "motet/models/model.h"
#include "motet/probe/options.h"

namespace motet {

/// Logits [B,H,T,S] rounded by the largest size [B or 1, H or 1, T or 1, 1] of their scale.
Tensor rounded_logits(const Tensor& logits_BHTS, const Tensor& largest, int64_t bits);

/// Attention for ModelImpl::walk among the tokens at these positions, with rounded logits: the definition's, a block of
/// queries at a time, without gradients.
ModelImpl::Attend rounded_attention(const Positions&, const LogitRounding&);

}  // namespace motet
