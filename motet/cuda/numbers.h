#pragma once
#include "motet/core/number_type.h"
#include "motet/cuda/device.h"

// Numbers in the memory of the device, whatever their type, as float32.
namespace motet::cuda {

MOTET_DEVICE float load(const void* data, NumberType type, int64_t i) {
  if (type == NumberType::float32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return type == NumberType::bfloat16 ? widen_bfloat16(bits) : widen_float16(bits);
}
MOTET_DEVICE void store(void* data, NumberType type, int64_t i, float x) {
  if (type == NumberType::float32)
    static_cast<float*>(data)[i] = x;
  else
    static_cast<uint16_t*>(data)[i] = type == NumberType::bfloat16 ? to_bfloat16(x) : to_float16(x);
}
/// The number of the type that is nearest to x.
MOTET_DEVICE float rounded(float x, NumberType type) {
  if (type == NumberType::float32) return x;
  return type == NumberType::bfloat16 ? widen_bfloat16(to_bfloat16(x)) : widen_float16(to_float16(x));
}

inline constexpr int kVector = 8;  // numbers that are read and written together: 16 bytes of 16-bit numbers

/// Whether vectors of numbers may begin here: at a multiple of 16 bytes.
inline bool holds_vectors(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Numbers [i, i + kCount), kCount 1 or kVector; vectors lie at multiples of 16 bytes.
template <int kCount>
MOTET_DEVICE void load_all(const void* data, NumberType type, int64_t i, float* to) {
  if constexpr (kCount == 1) {
    *to = load(data, type, i);
  } else if (type == NumberType::float32) {
    const auto* from = static_cast<const float*>(data) + i;
    read_vector(from, to);
    read_vector(from + 4, to + 4);
  } else {
    const uint4 bits = read16(static_cast<const uint16_t*>(data) + i);
    const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const auto half = static_cast<uint16_t>(pairs[j / 2] >> 16 * (j % 2));
      to[j] = type == NumberType::bfloat16 ? widen_bfloat16(half) : widen_float16(half);
    }
  }
}
template <int kCount>
MOTET_DEVICE void store_all(void* data, NumberType type, int64_t i, const float* x) {
  if constexpr (kCount == 1) {
    store(data, type, i, *x);
  } else if (type == NumberType::float32) {
    auto* to = static_cast<float*>(data) + i;
    write_vector(to, x);
    write_vector(to + 4, x + 4);
  } else {
    uint32_t pairs[4];
    MOTET_UNROLL
    for (int j = 0; j < 4; ++j)
      pairs[j] =
          type == NumberType::bfloat16 ? pack<true>(x[2 * j], x[2 * j + 1]) : pack<false>(x[2 * j], x[2 * j + 1]);
    write16(static_cast<uint16_t*>(data) + i, {pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}

}  // namespace motet::cuda
