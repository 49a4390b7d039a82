// Names of slices: what tests are counted by.
#pragma once

#include <cstdint>
#include <string>

namespace motet {

// "depth 1/4" ... "depth 4/4": the quarter of `places` in which a place, counted from 0, lies.
std::string depth_slice(int64_t place, int64_t places);

// "shots 1", "shots 2-3", "shots 4-6" of a count of at most 6: powers of two begin.
std::string count_slice(const std::string& what, int64_t count, int64_t most);

}  // namespace motet
