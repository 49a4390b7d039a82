#pragma once
#include <string>
#include <string_view>

namespace motet {

/// The page of the server: its document, its styles behind those of reports, its script around that of the reports'
/// attention figure.
std::string_view page_html();
std::string_view page_style();
const std::string& page_script();

}  // namespace motet
