#include "motet/core/instructions.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
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
          {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0}};
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

}  // namespace

std::vector<std::string> instruction_names() {
  std::vector<std::string> names;
  for (const Feature& feature : features())
    if (feature.here) names.emplace_back(feature.name);
  return names;
}

}  // namespace motet
