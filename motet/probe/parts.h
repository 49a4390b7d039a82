#pragma once
#include "motet/probe/calls.h"

// Numbers of a close look (closely.h says what each is), each from the operator's arguments of a layer.
namespace motet {

/// pre_fixed ... post_dynamic, of mixes that there are.
std::vector<Diagnostic> composition(const Call&);
/// rotary_rises ..., of queries and keys that turned by `rotary` at `at`.
std::vector<Diagnostic> rotary_rises(const Call&, const Rotary& rotary, const Positions& at);
/// logit_rank.
Diagnostic logit_rank(const Call&);

}  // namespace motet
