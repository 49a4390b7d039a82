// `motet bench memory`: how far one forward and backward pass of an operator raises the memory in use.
#pragma once

#include "motet/bench/attention_bench.h"

namespace motet {

struct MemoryUse {
  AttentionCase what;
  int64_t tensors = 0;  // bytes of the inputs, the output, its gradient and the gradients
  int64_t beyond = 0;   // peak bytes beyond those; on the CPU those of the process that are resident
  Time time;            // of the pass, once
};

/// Runs once, forward and backward; nothing kept from earlier calls counts. Throws Error where nobody tells the peak
/// (/proc/self/clear_refs, or the device's allocator).
MemoryUse measure_memory(const AttentionCase&, at::Device = at::kCPU);

}  // namespace motet
