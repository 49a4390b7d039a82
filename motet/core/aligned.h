#pragma once
#include <cstdint>
#include <memory>
#include <new>

namespace motet {

struct FreeAligned {
  void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
};

/// `count` numbers at a multiple of 64 bytes, not set to anything; null for none.
template <class T>
std::unique_ptr<T[], FreeAligned> aligned_array(int64_t count) {
  return std::unique_ptr<T[], FreeAligned>(
      count ? static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), std::align_val_t(64))) : nullptr);
}

}  // namespace motet
