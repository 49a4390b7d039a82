#pragma once

#include <chrono>

namespace motet {

// Of the steady clock, to be subtracted from each other.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace motet
