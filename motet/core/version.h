// The version of Motet; CMakeLists.txt and CHANGELOG.md name the same.
#pragma once

namespace motet {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace motet
