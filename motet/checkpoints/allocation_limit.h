#pragma once
#include <c10/core/CPUAllocator.h>

#include <functional>
#include <thread>

namespace motet {

/// While it lives, tensors that this thread makes on the CPU may take `most_bytes` in all, released ones included; the
/// one that would exceed it calls `refuse` (which throws) before any memory is taken. Other threads are not limited.
class AllocationLimit : private c10::Allocator {
 public:
  AllocationLimit(size_t most_bytes, std::function<void()> refuse);
  ~AllocationLimit() override;
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  c10::Allocator* below_;
  std::thread::id thread_ = std::this_thread::get_id();
  size_t left_;
  std::function<void()> refuse_;
};

}  // namespace motet
