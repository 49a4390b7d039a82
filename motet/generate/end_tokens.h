#pragma once
#include "motet/checkpoints/companions.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// The tokens that end a text, where transformers looks for them: eos_token_id of generation_config.json; else of
/// config.json; else the eos_token of tokenizer_config.json or special_tokens_map.json. Ids outside of the tokenizer's
/// vocabulary are left out, for they are never drawn. Throws Error naming the file for what is no id.
std::vector<int32_t> end_tokens(const Companions&, const Tokenizer&);

/// The same for "bos_token", "eos_token", "pad_token": what tokenizer_config.json or special_tokens_map.json calls so.
/// Empty when neither does.
std::string token_name(const Companions&, const std::string& role);

/// Gives config.json's ids that are absent from `companions` the tokens of those names.
void add_named_token_ids(Companions& companions, const Tokenizer&);

}  // namespace motet
