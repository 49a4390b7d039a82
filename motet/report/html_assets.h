// The style sheet and scripts of the report, built into the library.
#pragma once

#include <string_view>

namespace motet {

std::string_view report_style();
std::string_view report_script();  // the scripts in the order in which they build on each other

}  // namespace motet
