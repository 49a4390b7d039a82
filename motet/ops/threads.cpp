#include "motet/ops/threads.h"

#include <torch/csrc/stable/c/shim.h>

extern "C" int omp_pause_resource_all(int kind) __attribute__((weak));  // OpenMP 5.0, where torch has it

namespace motet {
namespace {

void on_torch_threads(int64_t n, const std::function<void(int64_t)>& task) {
  const auto run = [](int64_t begin, int64_t end, void* context) {
    for (int64_t i = begin; i < end; ++i) (*static_cast<const std::function<void(int64_t)>*>(context))(i);
  };
  TORCH_CHECK(torch_parallel_for(0, n, 1, run, const_cast<void*>(static_cast<const void*>(&task))) == 0,
              "torch_parallel_for failed");
}

}  // namespace

Threads torch_threads() { return {at::get_num_threads(), on_torch_threads}; }

void end_idle_threads() {
  constexpr int kSoft = 1;  // omp_pause_soft: what threads keep stays
  if (omp_pause_resource_all) omp_pause_resource_all(kSoft);
}

}  // namespace motet
