#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace motet {

/// The processor's name as the kernel tells it, with its family and model, for machines that are lent hide which one it
/// is; "unknown" when it does not.
std::string processor_name(const std::filesystem::path& facts = "/proc/cpuinfo");

/// Kinds of CPU that have goals of their own.
inline constexpr const char *kAvx512 = "AVX-512", *kAmx = "AMX";

/// Of a CPU with these instruction sets (instruction_names of motet/core): one of those, or "other".
std::string cpu_kind(const std::vector<std::string>& instructions);

/// The model of the machine's first NVIDIA GPU as its driver tells it; "unknown" when it does not.
std::string gpu_name(const std::filesystem::path& driver = "/proc/driver/nvidia");

/// Of the LibTorch in use.
std::string torch_version();

}  // namespace motet
