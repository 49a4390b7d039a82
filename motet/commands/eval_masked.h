#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

inline constexpr const char *kMasked = "masked",
                            *kMaskedSummary = "nats and accuracy over hidden tokens, of an encoder";

/// motet eval masked -m DIR [TEXT...]: of a text, its validation part, prepared data (its
/// validation part) or the built-in text.
int run_eval_masked(const nlohmann::json& request, const std::vector<std::string>& texts);

}  // namespace motet
