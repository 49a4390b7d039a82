// A device that is not the CPU, for tests without one: a backend whose memory is the host's and whose every function
// runs on the CPU, after it has refused operands of mixed devices, as a GPU would. (torch's own cpu_fallback lets them
// through.) Its allocator counts bytes as torch's caching ones do. other_device_test.cpp holds it.
#pragma once
#include <string>

#include "motet/ops/torch.h"

namespace motet::testing {

/// The device and its name, as parse_device takes it; the first call adds the backend to this process.
at::Device other_device();
std::string other_name();

/// What was asked of the device since it was there.
struct OtherCounts {
  // Copies to the host, item() and what else ends there, and copies from it that somebody waits for.
  int64_t waits = 0;
  int64_t synchronize = 0;   // for everything
  int64_t pinned = 0;        // blocks of host memory from which a device copies by itself
  int64_t without_wait = 0;  // copies from the host that nobody waits for
  int64_t since_wait = 0;    // functions of torch that it was asked for after the last wait for numbers
  int64_t calls = 0;         // functions of torch that it was asked for, one by one
};
OtherCounts other_counts();

/// Bytes that the device says it has; 0: it does not say.
void set_other_memory(int64_t bytes);

}  // namespace motet::testing
