#pragma once
#include "motet/attention/parts.h"
#include "motet/verify/programs.h"

// The parts of the operator's arguments that the programs operator, layer and head_mix describe in the same words.
namespace motet {

/// Sizes of one call.
struct CallSizes {
  int64_t B, T, S;
};

/// spec.heads with key_of and value_of.
Heads read_heads(const Spec&);

/// A number, or nothing for "1/sqrt(d)": the operator's own default.
std::optional<double> read_scale(const Spec&);

/// spec.causal and spec.window; a released window shows one key more.
void read_window(const Spec&, Visibility&);

/// Tables, bias and mask of the spec. A mask replaces all other visibility: it becomes a bias of 0 and -inf.
void read_tables(const GoldenFile&, const Spec&, const CallSizes&, Visibility&);

/// The parts of a mix by the names of kMixParts; null = absent. Throws Error for another name.
HeadMix read_mix(const GoldenFile&, const Spec& parts, bool identity);
QueryMix query_side(const HeadMix&);
KeyMix key_side(const HeadMix&);

/// Adds what is known of a call: q, k, v, lambda, the parts of both mixes, and, when `wanted`, key_matrices, the maps
/// (scores, logits, probs, mixed, lse) and "visible".
struct VerifiedCall {
  const Queries& queries;
  const Keys& keys;
  const Attention& attention;
};
void add_quantities(const GoldenFile&, const Spec&, const VerifiedCall&, const Quantities&, Evaluation&);

}  // namespace motet
