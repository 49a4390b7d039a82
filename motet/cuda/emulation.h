#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "motet/core/half.h"

// The host's half of device.h: kernels compiled by the C++ compiler, every CUDA thread a fiber. A warp-wide instruction
// is a meeting of 32 fibers, block_sync one of all of the block. Shared memory starts as NaN and is watched: an access
// outside it, or one that no barrier orders after another warp's (within a warp: no warp-wide instruction after another
// lane's) is a fault of the kernel, even where this run's order gave the right numbers.
namespace motet::cuda::emulated {

struct Index {
  int x = 0, y = 0, z = 0;
};
/// Of the thread that runs now.
inline Index threadIdx, blockIdx, gridDim;

/// What the kernels did wrong since the last call: the first fault in words, "" if there was none.
std::string take_fault();
/// Whether the warps of a block take their turns from the last to the first; results must not depend on it.
void reverse_order(bool);
/// The most shared memory that a block of the emulated device has.
inline int shared_limit = 227 << 10;
inline bool tensor_copies = true;

void launch(Index grid, int threads, int64_t shared_bytes, const std::function<void()>& kernel);

/// Shared memory at a byte offset, after the check of an access to `bytes` there.
std::byte* shared(uint32_t at, int bytes, bool write);

/// Notes a fault unless so many bytes of the device's memory, which are read together, begin at a multiple of that.
void check_vector(const void* at, uintptr_t bytes = 16);

void block_meet();
int block_sum(int value);
/// A barrier of `threads` threads beside that of the block.
void some_meet(int threads);

// Copies that run by themselves: they happen as late as a wait allows, in a moment that only who waited has seen.
void arrivals_init(uint32_t barrier);
void arrivals_expect(uint32_t barrier, uint32_t bytes);
void arrivals_wait(uint32_t barrier, uint32_t parity);
void copy_later(uint32_t barrier, uint32_t to, std::vector<std::byte> bytes);
/// Hands `value` (up to 32 bytes) of every lane to all lanes of the warp, [lane][bytes].
using Lanes = std::array<std::array<uint32_t, 8>, 32>;
Lanes warp_meet(const std::array<uint32_t, 8>& value);

}  // namespace motet::cuda::emulated

#define MOTET_DEVICE inline
#define MOTET_KERNEL(threads) inline void
#define MOTET_KERNEL_BESIDE(threads, blocks) inline void
#define MOTET_PARAMETER
#define MOTET_UNROLL
#define MOTET_NO_UNROLL

namespace motet::cuda {

using emulated::blockIdx;
using emulated::gridDim;
using emulated::threadIdx;

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};

/// Numbers of shared memory from a byte offset on; vectors of 4 lie at multiples of 16 bytes.
template <class T>
struct Shared {
  uint32_t at;
  T get(int i) const {
    T x;
    std::memcpy(&x, emulated::shared(at + i * sizeof(T), sizeof(T), false), sizeof(T));
    return x;
  }
  void set(int i, T x) const { std::memcpy(emulated::shared(at + i * sizeof(T), sizeof(T), true), &x, sizeof(T)); }
  float4 get4(int i) const {
    float4 x;
    std::memcpy(&x, emulated::shared(at + i * sizeof(T), sizeof(x), false), sizeof(x));
    return x;
  }
};

struct uint4 {
  uint32_t x, y, z, w;
};

inline uint4 read16(const void* from) {
  emulated::check_vector(from);
  uint4 x;
  std::memcpy(&x, from, 16);
  return x;
}
template <int kCount>
void read_words(const void* from, uint32_t* to) {
  emulated::check_vector(from, 4 * kCount);
  std::memcpy(to, from, 4 * kCount);
}
inline void write16(void* to, uint4 x) {
  emulated::check_vector(to);
  std::memcpy(to, &x, 16);
}
inline void read_vector(const float* from, float* to) {
  emulated::check_vector(from);
  std::copy_n(from, 4, to);
}
inline void write_vector(float* to, const float* x) {
  emulated::check_vector(to);
  std::copy_n(x, 4, to);
}

inline void block_sync() { emulated::block_meet(); }
inline int block_count(bool x) { return emulated::block_sum(x); }
inline void warp_sync() { emulated::warp_meet({}); }

inline float widen_bfloat16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
inline float widen_float16(uint16_t x) { return static_cast<float>(std::bit_cast<Half>(x)); }
inline float widen_int8(uint32_t bits, int j) { return static_cast<int8_t>(bits >> 8 * j & 255); }
inline uint16_t to_bfloat16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  return f != f ? 0x7fff : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint16_t to_float16(float f) { return std::bit_cast<uint16_t>(static_cast<Half>(f)); }

template <class Kernel, class A>
const char* launch(Kernel kernel, int x, int z, int threads, int64_t shared_bytes, const A& a, void*) {
  emulated::launch({x, 1, z}, threads, shared_bytes, [&] { kernel(a); });
  return nullptr;
}
inline void use_device(int) {}
inline const char* device_why_not() { return ""; }
/// Whether the emulated device copies tiles as sm_90 does.
inline bool has_tensor_copies() { return emulated::tensor_copies; }
inline int shared_limit() { return emulated::shared_limit; }

}  // namespace motet::cuda

#include "motet/cuda/emulation_tensor.h"
