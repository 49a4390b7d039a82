#pragma once
#include "motet/models/model.h"
#include "motet/report/html.h"

namespace motet {

enum class DrawnLayers { first_and_last, all };
/// Adds the attention weights over these tokens before and after the mix, of each head of these layers, under the name
/// of the mechanism. Throws UsageError when there are more tokens than the context.
void add_pictures(ReportData&, const std::string& mechanism, ModelImpl&, std::span<const int64_t> tokens,
                  DrawnLayers = DrawnLayers::first_and_last);

/// Adds what each layer's mechanism learned that does not depend on the input (Mechanism::learned).
void add_learned(ReportData&, const std::string& mechanism, ModelImpl&);

}  // namespace motet
