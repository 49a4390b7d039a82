// `motet bench memory`: how far one forward and backward pass of an operator raises the resident memory.
#pragma once

#include "motet/bench/attention_bench.h"

namespace motet {

struct MemoryUse {
  AttentionCase what;
  int64_t tensors = 0;  // bytes of the inputs, the output, its gradient and the gradients
  int64_t beyond = 0;   // peak resident bytes beyond those
  Time time;            // of the pass, once
};

/// Runs once, forward and backward; nothing kept from earlier calls counts. Throws Error where the kernel does not tell
/// the peak (/proc/self/clear_refs).
MemoryUse measure_memory(const AttentionCase&);

}  // namespace motet
