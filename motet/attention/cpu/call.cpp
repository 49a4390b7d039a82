#include "motet/attention/cpu/call.h"

namespace motet::cpu {

void parallel(const Runtime& runtime, int64_t n, const std::function<void(int64_t)>& task) {
  if (runtime.threads > 1 && n > 1 && runtime.parallel_for) return runtime.parallel_for(n, task);
  for (int64_t i = 0; i < n; ++i) task(i);
}

}  // namespace motet::cpu
