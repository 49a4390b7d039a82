#pragma once
#include "motet/core/threads.h"
#include "motet/ops/torch.h"

namespace motet {

/// torch's own pool and its number of threads, for kernels: no second pool beside it. Serial inside a parallel region,
/// as torch has it. (at::parallel_for in our own files would be serial: they are compiled without OpenMP.)
Threads torch_threads();

}  // namespace motet
