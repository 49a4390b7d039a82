// --shape of `motet bench`.
#pragma once

#include <string>

#include "motet/core/fields.h"

namespace motet {

/// "T=512,H=8,mechanism=dcmha": sizes between commas, each key and value checked by the table; what is not named keeps
/// the table's default. Throws UsageError that begins with "--shape" and names the nearest key or choice.
nlohmann::json parse_shape(const std::string& given, const OptionTable& table);
template <class Struct>
Struct read_shape(const std::string& given, const Fields<Struct>& sizes) {
  return sizes.read(parse_shape(given, sizes.table()));
}

}  // namespace motet
