#pragma once
#include "motet/checkpoints/companions.h"
#include "motet/data/examples.h"
#include "motet/text/tokenizer.h"

namespace motet {

/// chat_template.jinja, or chat_template of tokenizer_config.json (of a list of them the one named default), of a model
/// in `folder`; null when there is neither.
std::shared_ptr<const ChatTemplate> chat_template(const Companions&, const std::filesystem::path& folder);

/// What a template may use besides the messages, as transformers gives it: the texts of the tokens that have a role
/// (bos_token, eos_token, pad_token ...), and tools and documents, which are none.
nlohmann::ordered_json token_variables(const Companions&, const Tokenizer&);

/// How a model writes examples: chat_template.jinja or that of tokenizer_config.json for messages; the first of its end
/// tokens behind a completion.
ExampleForm example_form(const Companions&, const Tokenizer&, const std::filesystem::path& folder = "");

}  // namespace motet
