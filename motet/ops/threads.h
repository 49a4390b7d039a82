#pragma once
#include "motet/core/threads.h"
#include "motet/ops/torch.h"

namespace motet {

/// torch's own pool and its number of threads, for kernels: no second pool beside it. Serial inside a parallel region,
/// as torch has it. (at::parallel_for in our own files would be serial: they are compiled without OpenMP.)
Threads torch_threads();

/// Ends the threads that OpenMP keeps for parallel work of the calling thread; they come back with its next. A process
/// in which several threads computed has more of them than processors, and libgomp then lets those that wait sleep at
/// once: every small layer pays for waking them.
void end_idle_threads();

}  // namespace motet
