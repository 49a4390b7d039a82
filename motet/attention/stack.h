#pragma once
#include "motet/attention/parts.h"

// The torch schema of the operator, made from the table of parts, and arguments to and from a dispatcher stack.
namespace motet {

/// "Tensor q, Tensor k, Tensor v, *, Tensor? bias=None, ..., str? kernel=None": every argument of Arguments, in order.
std::string schema_arguments();
/// The arguments of apply_head_mix after `Tensor scores`.
std::string schema_mix_arguments();

void push(torch::jit::Stack&, const Arguments&);
Arguments pop_arguments(torch::jit::Stack&);
void push(torch::jit::Stack&, const HeadMix&);
HeadMix pop_mix(torch::jit::Stack&);

}  // namespace motet
