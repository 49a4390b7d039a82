#pragma once
#include <string>
#include <vector>

namespace motet {

/// What this CPU has of the instruction sets that our kernels are compiled for: all that Highway's targets AVX2 and
/// AVX3 use. On 64-bit ARM there is nothing to ask: NEON belongs to it.
#if defined(__x86_64__)
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("aes");
}
inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
inline bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
inline bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
/// Why this process cannot multiply tiles of bfloat16 (AMX); "" where it can. Linux lends the tiles to a process that
/// asks, and the first call does.
std::string why_not_amx();
#endif

/// Whether this CPU is Intel's and has AVX-512.
inline bool of_intel_with_avx512() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") && has_avx512();
#else
  return false;
#endif
}

/// The instruction sets of this CPU that matter to us, as `motet doctor` prints them, or what it lacks.
std::vector<std::string> instruction_names();

/// Tells the CPU that a loop waits for another thread.
inline void wait_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace motet
