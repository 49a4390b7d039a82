#pragma once
#include "motet/models/model.h"

namespace motet {

/// Freezes the parameters that patterns name, one pattern after the other: "*" stands for anything, and a pattern
/// behind
/// "!" lets what it names learn again. Throws UsageError for a pattern that names none, and when nothing is left to
/// learn. Returns how many parameters are frozen.
int64_t freeze(ModelImpl&, const std::vector<std::string>& patterns);

/// Whether "*" in `pattern` can be filled so that it is `name`.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace motet
