#include "motet/core/shown.h"

#include "motet/core/error.h"
#include "motet/core/utf8.h"

namespace motet {

std::string shown(const nlohmann::json& value) {
  constexpr size_t kLongest = 80;
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  const std::string dumped = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return dumped.size() > kLongest ? dumped.substr(0, utf8_boundary(dumped, kLongest, -1)) + "..." : dumped;
}

}  // namespace motet
