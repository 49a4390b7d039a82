#include "motet/ops/arena.h"

#include <sys/mman.h>

#include "motet/core/error.h"

namespace motet {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

}  // namespace

WeightArena::WeightArena(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) / kLargePage + 2) * kLargePage;
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for ", bytes, " bytes of weights");
  const size_t address = reinterpret_cast<size_t>(memory), begin = (address + kLargePage - 1) / kLargePage * kLargePage;
  ::madvise(reinterpret_cast<void*>(begin), size - (begin - address), MADV_HUGEPAGE);  // a wish
  bytes_ = at::from_blob(
      reinterpret_cast<void*>(begin), {bytes}, [memory, size](void*) { ::munmap(memory, size); }, at::kByte);
}

Tensor WeightArena::take(at::IntArrayRef sizes, at::ScalarType type) {
  int64_t size = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t n : sizes) size *= n;
  const Tensor made = bytes_.narrow(0, used_, size).view(type).view(sizes);
  used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
  return made;
}

}  // namespace motet
