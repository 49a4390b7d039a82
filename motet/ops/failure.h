#pragma once
#include <exception>
#include <string>

namespace motet {

/// What a user is told of a failure, in one line: Motet's own message as it is; torch's without its stack; of memory
/// that ran out, how much was asked for and what helps.
std::string told(const std::exception&);

}  // namespace motet
