#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

#include "motet/cuda/numbers.h"
#include "motet/cuda/runtime.h"

// What the tests of all CUDA kernels share: memory that kernels write, poisoned before.
namespace motet::cuda::testing {

/// Numbers of a type, NaN at first, and what they are afterwards.
struct Typed {
  NumberType type;
  std::vector<float> floats;
  std::vector<uint16_t> halves;

  Typed(NumberType t, int64_t size) : type(t) {
    if (type == NumberType::float32)
      floats.assign(static_cast<size_t>(size), NAN);
    else
      halves.assign(static_cast<size_t>(size), 0x7fff);
  }
  void* data() { return type == NumberType::float32 ? static_cast<void*>(floats.data()) : halves.data(); }
  int64_t size() const { return static_cast<int64_t>(floats.size() + halves.size()); }
  std::vector<float> read() {
    std::vector<float> x(static_cast<size_t>(size()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = load(data(), type, static_cast<int64_t>(i));
    return x;
  }
};

struct Memory {
  std::vector<std::byte> bytes;
  explicit Memory(int64_t size) : bytes(static_cast<size_t>(size), std::byte{0xff}) {}
  Runtime runtime() { return {bytes.data(), nullptr}; }
};

}  // namespace motet::cuda::testing
