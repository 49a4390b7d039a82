#include "motet/checkpoints/allocation_limit.h"

namespace motet {

AllocationLimit::AllocationLimit(size_t most_bytes, std::function<void()> refuse)
    : below_(c10::GetCPUAllocator()), left_(most_bytes), refuse_(std::move(refuse)) {
  c10::SetCPUAllocator(this);
}

AllocationLimit::~AllocationLimit() { c10::SetCPUAllocator(below_); }

c10::DataPtr AllocationLimit::allocate(size_t bytes) {
  if (std::this_thread::get_id() == thread_) {
    if (bytes > left_) refuse_();
    left_ -= bytes;
  }
  return below_->allocate(bytes);  // which also releases it, so the tensors outlive this object
}

}  // namespace motet
