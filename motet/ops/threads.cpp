#include "motet/ops/threads.h"

#include <torch/csrc/stable/c/shim.h>

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

}  // namespace motet
