#pragma once
#include "motet/verify/verify.h"

namespace motet {

/// Recomputes what expected.safetensors of a model folder recorded, with the model that config.json and the weights
/// describe: logits, hidden states, loss, the norm of each parameter's gradient, a trajectory of AdamW, greedy
/// continuations, variants. Throws Error in one line that begins with the path.
FileReport verify_model_folder(const std::string& path, const VerifyOptions&);

/// Whether the path is a model folder: it has a config.json.
bool is_model_folder(const std::string& path);

}  // namespace motet
