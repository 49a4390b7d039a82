// The text inside the library.
#pragma once

#include <string_view>

namespace motet {

// Tiny Shakespeare: 1,115,394 bytes of the plays, ASCII, public domain.
std::string_view builtin_text();

}  // namespace motet
