#pragma once
// What kernels may ask of the machine: once as CUDA, once emulated on the host (emulation.h says with which checks).
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define MOTET_DEVICE __device__ __forceinline__
#define MOTET_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
#define MOTET_PARAMETER __grid_constant__
#define MOTET_UNROLL _Pragma("unroll")

namespace motet::cuda {

extern __shared__ __align__(1024) unsigned char shared_memory[];

/// Numbers of shared memory from a byte offset on; vectors of 4 lie at multiples of 16 bytes.
template <class T>
struct Shared {
  uint32_t at;
  MOTET_DEVICE T get(int i) const { return reinterpret_cast<const T*>(shared_memory + at)[i]; }
  MOTET_DEVICE void set(int i, T x) const { reinterpret_cast<T*>(shared_memory + at)[i] = x; }
  MOTET_DEVICE float4 get4(int i) const { return *reinterpret_cast<const float4*>(shared_memory + at + i * sizeof(T)); }
};

MOTET_DEVICE void block_sync() { __syncthreads(); }
/// How many threads of the block say true; a barrier.
MOTET_DEVICE int block_count(bool x) { return __syncthreads_count(x); }
MOTET_DEVICE void warp_sync() { __syncwarp(); }

MOTET_DEVICE float widen_bfloat16(uint16_t x) { return __uint_as_float(static_cast<uint32_t>(x) << 16); }
MOTET_DEVICE float widen_float16(uint16_t x) { return __half2float(__ushort_as_half(x)); }
MOTET_DEVICE uint16_t to_bfloat16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
MOTET_DEVICE uint16_t to_float16(float x) { return __half_as_ushort(__float2half_rn(x)); }

/// Puts kernel<<<(x, 1, z), threads>>>(a) on the stream; null, or what is wrong.
template <class Kernel, class A>
const char* launch(Kernel kernel, int x, int z, int threads, int64_t shared_bytes, const A& a, void* stream) {
  cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error == cudaSuccess) {
    kernel<<<dim3(x, 1, z), threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(a);
    error = cudaGetLastError();
  }
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

/// Why the current device cannot run the kernels; "" when it can.
inline const char* device_why_not() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major < 8 ? "the GPU is older than compute capability 8.0" : "";
}

/// Bytes of shared memory that a block of the current device may have.
inline int shared_limit() {
  int device = 0, bytes = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

}  // namespace motet::cuda
#else
#include "motet/attention/cuda/emulation.h"
#endif
