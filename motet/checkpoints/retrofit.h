#pragma once
#include "motet/checkpoints/convert.h"

namespace motet {

/// Names of the mechanisms that a softmax model can be given: "coca", "dcmha", "differential_v2", "key_size",
/// "talking_heads".
std::vector<std::string> retrofit_names();

/// Whether the model computes the same at the start: all but coca. Throws UsageError with the nearest name.
bool starts_equal(const std::string& retrofit);

/// A softmax model with another mechanism; what is new is drawn from `seed`. Computing the same at the start: dcmha
/// (maps that add nothing, and learn), talking_heads (identity maps, grouped keys and values written out),
/// differential_v2 (each query head twice, lambda 1/2, a doubled output projection), key_size (heads twice as wide, of
/// which the new half of the keys is 0). coca (slack) gets a fresh t_proj for its k_proj and has to be trained in
/// stages. Throws UsageError for another name or a model that the mechanism does not fit, Error for one with another
/// mechanism than softmax.
Adaptation retrofitted(const Checkpoint&, const std::string& name, uint64_t seed);

/// A checkpoint in our layout whose tensors are those of an adaptation; the checkpoint behind that must outlive it.
Checkpoint as_checkpoint(const Adaptation&, const Checkpoint& source);

}  // namespace motet
