#pragma once
#include "motet/attention/cpu/problem.h"
#include "motet/attention/kernels.h"

// The fused CPU kernels with threads and instructions of the caller's choice; the kernel table uses torch's threads and
// the best instructions. Only for problems that kFused takes.
namespace motet {

Attended fused_forward(const Problem&, const cpu::Runtime&);
Gradients fused_backward(const Problem&, const Backward&, const cpu::Runtime&);

/// Gives back the memory that the kernels keep for their next call (at most 256 MiB).
void release_fused_memory();

}  // namespace motet
