#pragma once
#include "motet/layers/rotary.h"
#include "motet/verify/programs.h"

// spec.rope in the words of the mechanisms' options.
namespace motet {

/// Adds the rotary options (rope_base, rope_fraction, ...) that spec.rope describes for heads of this width; null: none
/// rotates. Throws Error for what they cannot say.
void add_rope_options(const Spec& rope, int64_t head_dim, nlohmann::json& options);

/// Where `length` tokens stand: 0, 1, ... or the file's table. Dynamic scaling is based on `length`.
Positions rope_positions(const GoldenFile&, const Spec& rope, int64_t length);

/// rope_inv_freq, rope_cos, rope_sin.
void add_rope_quantities(const Rotary&, const Positions&, Evaluation&);

}  // namespace motet
