#include "motet/bench/memory_bench.h"

#include "motet/attention/fused.h"
#include "motet/bench/passes.h"
#include "motet/bench/returning_heap.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

int64_t bytes(const Tensor& t) { return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; }

}  // namespace

MemoryUse measure_memory(const AttentionCase& what, at::Device device) {
  const ReturningHeap heap;
  AttentionSize small = what.size;
  small.T = std::min<int64_t>(small.T, 64);
  const Arguments warm = as_leaves(benched_operator(what.mechanism).arguments(small), at::kFloat, device);
  both_passes(run_operator, warm, at::ones_like(run_operator(warm)));  // libraries and pools
  release_fused_memory();
  const Arguments a = as_leaves(benched_operator(what.mechanism).arguments(what.size), at::kFloat, device);
  MemoryUse use{what};
  const int64_t heads = result_shapes(a).out[2].expect_int(), width = a.input[kV].size(3);
  const Tensor dout = at::ones({what.size.B, what.size.T, heads, width}, device);
  malloc_trim(0);
  if (!reset_peak_memory(device)) fail("bench memory: the peak of the memory in use cannot be reset on ", device.str());
  const int64_t before = used_memory(device);
  std::vector<Tensor> results;
  use.time = timed([&] { results = both_passes(run_operator, a, dout); }, device);
  int64_t made = 0;  // the output and the gradients; the inputs and dout were there before
  for (const Tensor& t : results) made += bytes(t);
  use.tensors = made + bytes(dout);
  for (const Tensor& t : a.input) use.tensors += bytes(t);
  use.beyond = peak_memory(device) - before - made;
  return use;
}

}  // namespace motet
