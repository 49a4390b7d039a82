#pragma once
#include <filesystem>
#include <string>

namespace motet {

/// The processor's name as the kernel tells it; "unknown" when it does not.
std::string processor_name();

/// The model of the machine's first NVIDIA GPU as its driver tells it; "unknown" when it does not.
std::string gpu_name(const std::filesystem::path& driver = "/proc/driver/nvidia");

/// Of the LibTorch in use.
std::string torch_version();

}  // namespace motet
