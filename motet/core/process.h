// What this process takes of the machine (Linux).
#pragma once

#include <cstdint>

namespace motet {

// Bytes in memory now, and the most there ever were since the start or the last reset. 0 when /proc does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Memory that can be taken without swapping. 0 when /proc does not tell.
int64_t available_bytes();

// Makes the present size the new peak; false when the kernel refuses.
bool reset_peak_resident();

// What was freed but is still held for later goes back to the system.
void return_freed_memory();

// The processors this process may run on, at least 1.
int processor_count();

}  // namespace motet
