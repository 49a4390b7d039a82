#pragma once
#include "motet/models/model.h"

namespace motet {

/// The options of attention that say where tokens stand, and nothing of the parameters: those that a trained model may
/// be given anew. rope_base, rope_scaling, rope_factor ...
const std::vector<std::string>& position_options();

/// The model for other positions than those of its training: `context` tokens (0: as it was) and values of
/// position_options(). Scaling that is based on the trained length keeps the one that it had. Throws UsageError for
/// other options and for values that they do not take.
ModelConfig lengthened(ModelConfig, int64_t context, const nlohmann::json& options);

}  // namespace motet
