// libmotet.so, loaded only when a subcommand runs: LibTorch costs a fifth of a second before main.
#pragma once

#include <string>

namespace motet {

// Loads the library from beside this program, else from ../lib, ../lib64 or a Debian machine's ../lib/..., and runs the
// subcommand there. Returns its exit code. Throws Error when the library is missing or does not load.
int run_engine(const std::string& subcommand, const std::string& request);

}  // namespace motet
