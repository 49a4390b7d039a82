#pragma once
#include "motet/checkpoints/convert.h"

namespace motet {

/// Names of the mechanisms that a softmax model can be given: "dcmha", "talking_heads", "differential_v2", "key_size".
std::vector<std::string> retrofit_names();

/// A softmax model with another mechanism that computes the same at the start; what is new is drawn from `seed`.
/// dcmha: maps that add nothing, and learn; talking_heads: identity maps, grouped keys and values written out;
/// differential_v2: each query head twice, lambda 1/2, a doubled output projection; key_size: heads twice as wide, of
/// which the new half of the keys is 0. Throws UsageError for another name (CoCA cannot start equal), Error for a model
/// with another mechanism than softmax.
Adaptation retrofitted(const Checkpoint&, const std::string& name, uint64_t seed);

/// A checkpoint in our layout whose tensors are those of an adaptation; the checkpoint behind that must outlive it.
Checkpoint as_checkpoint(const Adaptation&, const Checkpoint& source);

}  // namespace motet
