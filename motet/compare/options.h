#pragma once

namespace motet {

/// What is equal between the models of a comparison.
enum class Match { parameters, flops, none };

}  // namespace motet
