#pragma once
#include <cstddef>

#include "motet/cuda/device.h"

// What the hosts' halves of kernels share: a workspace cut into arrays, launches in order.
namespace motet::cuda {

inline int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Hands out a workspace in order; without memory it only counts.
class Workspace {
 public:
  explicit Workspace(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  template <class T>
  T* take(int64_t count) {
    const int64_t at = bytes_;
    bytes_ += blocks_of(count * static_cast<int64_t>(sizeof(T)), 256) * 256;
    return memory_ ? reinterpret_cast<T*>(memory_ + at) : nullptr;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

/// Puts kernels on a stream until one fails.
class Launches {
 public:
  explicit Launches(void* stream) : stream_(stream) {}
  /// Blocks (x, 1, z).
  template <class A>
  void run(void (*kernel)(A), int64_t x, int z, int threads, int64_t shared_bytes, const A& a) {
    if (!error_ && x > 0 && z > 0) error_ = launch(kernel, static_cast<int>(x), z, threads, shared_bytes, a, stream_);
  }
  /// At least `count` threads in blocks of `threads`.
  template <class A>
  void flat(void (*kernel)(A), int64_t count, int threads, const A& a) {
    run(kernel, blocks_of(count, threads), 1, threads, 0, a);
  }
  void fail(const char* error) {
    if (!error_) error_ = error;
  }
  const char* error() const { return error_; }

 private:
  void* stream_;
  const char* error_ = nullptr;
};

}  // namespace motet::cuda
