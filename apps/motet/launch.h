#pragma once
#include <string>
#include <vector>

namespace motet {

// Runs this program so many times on this machine, with `arguments` (the program's name first) and what torchrun would
// say to each: ranks, and a free port to meet at. Signals go on to all of them. When one fails the others end by
// themselves (motet/processes/watch.h), but for those that are stopped, which are killed, and those that had not met it
// yet, which get SIGTERM. Returns the exit code of rank 0, or of the first that failed where rank 0 did not.
int launch(int64_t processes, const std::vector<std::string>& arguments);

}  // namespace motet
