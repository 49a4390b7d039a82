#pragma once
#include <malloc.h>

namespace motet {

/// Freed tensors leave the process at once while this lives, so that the peak is what was alive.
class ReturningHeap {
 public:
  ReturningHeap() { set(128 << 10); }
  ~ReturningHeap() { set(32 << 20); }
  ReturningHeap(const ReturningHeap&) = delete;

 private:
  static void set(int bytes) {
    mallopt(M_MMAP_THRESHOLD, bytes);
    mallopt(M_TRIM_THRESHOLD, bytes);
    malloc_trim(0);
  }
};

}  // namespace motet
