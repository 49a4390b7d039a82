#include "motet/core/instructions.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace motet {
namespace {

struct Feature {
  const char* name;
  bool here;
};

std::vector<Feature> features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {{"avx2", __builtin_cpu_supports("avx2") != 0},
          {"fma", __builtin_cpu_supports("fma") != 0},
          {"avx512f", __builtin_cpu_supports("avx512f") != 0},
          {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
          {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
          {"amx-tile", __builtin_cpu_supports("amx-tile") != 0},
          {"amx-bf16", __builtin_cpu_supports("amx-bf16") != 0}};
#elif defined(__aarch64__) && defined(__linux__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {{"neon", (first & HWCAP_ASIMD) != 0},
          {"sve", (first & HWCAP_SVE) != 0},
          {"sve2", (second & HWCAP2_SVE2) != 0},
          {"bf16", (second & HWCAP2_BF16) != 0},
          {"i8mm", (second & HWCAP2_I8MM) != 0}};
#elif defined(__aarch64__)
  return {{"neon", true}};
#else
  return {};
#endif
}

#if defined(__x86_64__)
// Linux: ARCH_REQ_XCOMP_PERM of arch_prctl, and the number of the state that tiles are.
bool tiles_are_lent() {
#if defined(__linux__)
  constexpr long kAsk = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

#if defined(__x86_64__)
std::string why_not_amx() {
  static const char* const reason = [] {
    __builtin_cpu_init();
    const bool has = has_avx512_bf16() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
    return !has ? "this CPU has no AMX with bfloat16" : !tiles_are_lent() ? "the system does not lend AMX tiles" : "";
  }();
  return reason;
}
#endif

std::vector<std::string> instruction_names() {
  std::vector<std::string> names;
  for (const Feature& feature : features())
    if (feature.here) names.emplace_back(feature.name);
  return names;
}

}  // namespace motet
