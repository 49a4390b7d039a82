#pragma once
// What kernels may ask of the machine: once as CUDA, once emulated on the host (emulation.h says with which checks).
#ifdef __CUDACC__
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define MOTET_DEVICE __device__ __forceinline__
#define MOTET_KERNEL(threads) MOTET_KERNEL_BESIDE(threads, 1)
#define MOTET_KERNEL_BESIDE(threads, blocks) __global__ void __launch_bounds__(threads, blocks)  // blocks: at once
#define MOTET_PARAMETER __grid_constant__
#define MOTET_UNROLL _Pragma("unroll")
#define MOTET_NO_UNROLL _Pragma("unroll 1")

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
/// Byte j of the bits, a signed number: they are the last bits of 2^23 + 128 + it, which costs no conversion.
MOTET_DEVICE float widen_int8(uint32_t bits, int j) {
  return __uint_as_float(__byte_perm(bits ^ 0x80808080u, 0x4B000000u, 0x7540 | j)) - 8388736.f;
}
MOTET_DEVICE uint16_t to_bfloat16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
MOTET_DEVICE uint16_t to_float16(float x) { return __half_as_ushort(__float2half_rn(x)); }

// 16 bytes of the device's memory, at a multiple of 16.
MOTET_DEVICE uint4 read16(const void* from) { return *static_cast<const uint4*>(from); }
/// One or two words of 4 bytes, at a multiple of their size.
template <int kCount>
MOTET_DEVICE void read_words(const void* from, uint32_t* to) {
  if constexpr (kCount == 1) {
    to[0] = *static_cast<const uint32_t*>(from);
  } else {
    const uint2 both = *static_cast<const uint2*>(from);
    to[0] = both.x, to[1] = both.y;
  }
}
MOTET_DEVICE void write16(void* to, uint4 x) { *static_cast<uint4*>(to) = x; }
MOTET_DEVICE void read_vector(const float* from, float* to) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
MOTET_DEVICE void write_vector(float* to, const float* x) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

// ---- tensor cores: every address is one of shared memory, in bytes, from shared_base() on --------------------------

MOTET_DEVICE uint32_t shared_base() { return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)); }
/// x, which the compiler may not compute again at each use.
MOTET_DEVICE uint32_t opaque(uint32_t x) { return __shfl_sync(~0u, x, threadIdx.x & 31); }
MOTET_DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
MOTET_DEVICE bool warp_any(bool x) { return __any_sync(~0u, x); }

/// Four 8x8 matrices of 16-bit numbers; lane l gives the address of row l % 8 of matrix l / 8.
MOTET_DEVICE void load_matrices(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
MOTET_DEVICE void load_matrices_transposed(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
MOTET_DEVICE void store_matrices(uint32_t at, const uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4],{%0,%1,%2,%3};" ::"r"(r[0]), "r"(r[1]), "r"(r[2]),
               "r"(r[3]), "r"(at)
               : "memory");
}
MOTET_DEVICE void store_matrices_transposed(uint32_t at, const uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4],{%0,%1,%2,%3};" ::"r"(r[0]), "r"(r[1]), "r"(r[2]),
               "r"(r[3]), "r"(at)
               : "memory");
}
/// The transpose of an 8x8 matrix, a row's two numbers a lane.
MOTET_DEVICE uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(y) : "r"(x));
  return y;
}

/// d [16,8] += a [16,16] b [16,8] in float32; 16-bit numbers, bfloat16 or float16.
template <bool kBfloat16>
MOTET_DEVICE void multiply(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  if constexpr (kBfloat16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// d [16,8] += a [16,8] b [8,8], float16.
MOTET_DEVICE void multiply8(float* d, uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
}
/// a [16,16] b [16,8] in float16, sums too.
MOTET_DEVICE void multiply_half(uint32_t* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},{%6,%7},{%8,%8};"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

// Pairs of float16.
MOTET_DEVICE uint32_t times2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
MOTET_DEVICE uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// As moves of halves, which the compiler makes part of the multiplication (fma2) that reads them.
MOTET_DEVICE uint32_t both_low(uint32_t a) {
  uint32_t d;
  asm("{ .reg .b16 l,h; mov.b32 {l,h},%1; mov.b32 %0,{l,l}; }" : "=r"(d) : "r"(a));
  return d;
}
MOTET_DEVICE uint32_t both_high(uint32_t a) {
  uint32_t d;
  asm("{ .reg .b16 l,h; mov.b32 {l,h},%1; mov.b32 %0,{h,h}; }" : "=r"(d) : "r"(a));
  return d;
}
MOTET_DEVICE uint32_t pack_float16(float low, float high) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
template <bool kBfloat16>
MOTET_DEVICE uint32_t pack(float low, float high) {
  if constexpr (!kBfloat16) return pack_float16(low, high);
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
MOTET_DEVICE float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
MOTET_DEVICE float log_of_2(float x) { return __log2f(x); }

MOTET_DEVICE uint4 load16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}
MOTET_DEVICE float2 load8(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
  return v;
}
MOTET_DEVICE float load4(uint32_t at) {
  float v;
  asm volatile("ld.shared.f32 %0,[%1];" : "=f"(v) : "r"(at));
  return v;
}
MOTET_DEVICE void store4(uint32_t at, float v) { asm volatile("st.shared.f32 [%0],%1;" ::"r"(at), "f"(v) : "memory"); }
MOTET_DEVICE void store16(uint32_t at, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/// A barrier of 256 threads, beside that of the block.
MOTET_DEVICE void sync_256() { asm volatile("bar.sync 1,256;" ::: "memory"); }
/// More or fewer registers for each warp of a group of four. The sums over all groups must stay within what the launch
/// gave (504 times 128 for 384 threads), or the block waits for ever.
template <int kCount>
MOTET_DEVICE void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
MOTET_DEVICE void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Copies that run by themselves and arrive, counted in bytes, at a barrier in shared memory (8 bytes).
MOTET_DEVICE void arrivals_init(uint32_t barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0],1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
MOTET_DEVICE void arrivals_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Waits for the phase of this parity. Gives up after seconds: a fault gives wrong numbers, not a GPU that hangs (and
/// __trap() would make ptxas ignore more_registers).
MOTET_DEVICE void arrivals_wait(uint32_t barrier, uint32_t parity) {
  constexpr uint32_t kNanoseconds = 16384;  // of a try
  for (int spin = 0; spin < 250000; ++spin) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2,%3; selp.u32 %0,1,0,p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity), "r"(kNanoseconds)
                 : "memory");
    if (done) return;
  }
}
MOTET_DEVICE void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// [B,rows,heads,width] as boxes of 64 columns, 16 rows and `heads` heads, which lie in shared memory as
/// [head][row][128 bytes] with 16-byte pieces exchanged by row (piece ^ row % 8); zeros past the ends.
struct TileMap {
  CUtensorMap map;
};
MOTET_DEVICE void copy_tile(uint32_t to, const TileMap* from, int column, int row, int head, int b, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3,%4,%5}],[%6];" ::"r"(
          to),
      "l"(from), "r"(column), "r"(row), "r"(head), "r"(b), "r"(barrier)
      : "memory");
}
/// Null, or what is wrong.
inline const char* make_tile_map(TileMap& to, const void* data, bool bfloat16, int64_t width, int64_t rows,
                                 int64_t heads, int64_t B, int64_t row_stride, int64_t head_stride,
                                 int64_t batch_stride, int box_heads) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (!encode) return "the driver has no cuTensorMapEncodeTiled";
  const auto bytes = [](int64_t elements) { return static_cast<cuuint64_t>(elements) * 2; };
  const cuuint64_t size[4] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(B)};
  const cuuint64_t stride[3] = {bytes(row_stride), bytes(head_stride), bytes(batch_stride)};
  const cuuint32_t box[4] = {64, 16, static_cast<cuuint32_t>(box_heads), 1}, one[4] = {1, 1, 1, 1};
  const CUresult done =
      encode(&to.map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(data), size, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return done == CUDA_SUCCESS ? nullptr : "cuTensorMapEncodeTiled refuses a tensor";
}

/// Bytes of shared memory that a block of the current device may have.
inline int shared_limit() {
  int device = 0, bytes = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

/// Puts kernel<<<(x, 1, z), threads>>>(a) on the stream; null, or what is wrong.
template <class Kernel, class A>
const char* launch(Kernel kernel, int x, int z, int threads, int64_t shared_bytes, const A& a, void* stream) {
  if (shared_bytes > 48 << 10)  // always the same number: calls of other threads may ask for more or less
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared_limit());
  kernel<<<dim3(x, 1, z), threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(a);
  const cudaError_t error = cudaGetLastError();  // of either, and keeps none for the next
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

inline void use_device(int device) {
  int now = -1;
  if (cudaGetDevice(&now) != cudaSuccess || now != device) cudaSetDevice(device);
}

/// Why the current device cannot run the kernels; "" when it can.
inline const char* device_why_not() {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return cudaGetErrorString(error);  // a driver older than the toolkit, for instance
  return major < 8 ? "the GPU is older than compute capability 8.0" : "";
}

/// Whether the current device has what tensor.cu is compiled for.
inline bool has_tensor_copies() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major == 9;
}

}  // namespace motet::cuda
#else
#include "motet/cuda/emulation.h"
#endif
