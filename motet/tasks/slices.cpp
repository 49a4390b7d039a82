#include "motet/tasks/slices.h"

#include <algorithm>
#include <bit>

#include "motet/core/error.h"

namespace motet {

std::string depth_slice(int64_t place, int64_t places) { return text("depth ", 1 + 4 * place / places, "/4"); }

std::string count_slice(const std::string& what, int64_t count, int64_t most) {
  const auto first = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)));
  const int64_t last = std::min(2 * first - 1, most);
  return first == last ? text(what, " ", first) : text(what, " ", first, "-", last);
}

}  // namespace motet
