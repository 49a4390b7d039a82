#pragma once
#include <string>

namespace motet {

/// The processor's name as the kernel tells it; "unknown" when it does not.
std::string processor_name();

/// Of the LibTorch in use.
std::string torch_version();

}  // namespace motet
